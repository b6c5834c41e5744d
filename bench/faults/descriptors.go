package faults

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// A flood of unrequested descriptors: messages to the daemon, well-formed and not, carry descriptors, some more than a
// message may carry. Each socket that the daemon closes is replaced. Nobody reads the answers.
const (
	floodSockets = 8 // open at a time
	floodRounds  = 2000
	// descriptors that the daemon may hold meanwhile: one for each socket, and those of the few messages that it is
	// reading
	floodSlack = 2 * floodSockets
)

// floodDescriptors sends so many messages. It returns how many it sent, with how many descriptors, and how often the
// daemon closed a socket.
func floodDescriptors(ctx context.Context, socket string, rounds int) (messages, descriptors, turned uint64,
	err error) {
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, 0, 0, err
	}
	defer null.Close()
	var texts [][]byte
	for _, kind := range []ipc.Kind{ipc.KindVersion, ipc.KindListen, ipc.KindRegister} {
		b, err := (&ipc.Message{ID: 1, Kind: kind, Service: "x", Size: 4096}).Encode()
		if err != nil {
			return 0, 0, 0, err
		}
		texts = append(texts, b)
	}
	texts = append(texts, []byte("not a message"))
	var socks [floodSockets]*net.UnixConn
	defer func() {
		for _, s := range socks {
			if s != nil {
				s.Close()
			}
		}
	}()
	for i := 0; i < rounds && ctx.Err() == nil; i++ {
		s := &socks[i%floodSockets]
		if *s == nil {
			if *s, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"}); err != nil {
				return messages, descriptors, turned, err
			}
		}
		fds := make([]int, []int{1, ipc.MaxFDs, ipc.MaxFDs + 1, 64, 253}[i%5])
		for k := range fds {
			fds[k] = int(null.Fd())
		}
		(*s).SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		if _, _, err := (*s).WriteMsgUnix(texts[i/5%len(texts)], unix.UnixRights(fds...), nil); err == nil {
			messages++
			descriptors += uint64(len(fds))
		} else if errors.Is(err, unix.EPERM) { // the daemon takes none (SO_PASSRIGHTS): the kernel refused them
			descriptors += uint64(len(fds))
			if _, err := (*s).Write(texts[i/5%len(texts)]); err == nil {
				messages++
			}
		} else if !errors.Is(err, os.ErrDeadlineExceeded) { // turned away: on with another socket
			turned++
			(*s).Close()
			*s = nil
		}
	}
	return messages, descriptors, turned, ctx.Err()
}

func descriptorFlood(t *Trial) {
	c := t.atWork(MixRandom, 2)
	pid := t.cluster.Daemon(0).Pid()
	var err error
	was, most := restOf(pid).Descriptors, 0
	var messages, descriptors, turned uint64
	done := make(chan error, 1)
	go func() {
		var err error
		messages, descriptors, turned, err = floodDescriptors(t.ctx, t.cluster.Socket(0),
			t.many(floodRounds, floodRounds/4))
		done <- err
	}()
	for flooding := true; flooding; {
		select {
		case err = <-done:
			flooding = false
		case <-time.After(2 * time.Millisecond):
		}
		most = max(most, restOf(pid).Descriptors)
	}
	kit.Check(err)
	t.injected("descriptors", descriptors)
	t.counted("messages", messages)
	t.counted("sockets closed by the daemon", turned)
	t.row.Measured["descriptors before"], t.row.Measured["descriptors at most"] = float64(was), float64(most)
	t.check("unrequested descriptors are closed", most-was <= floodSlack,
		"the daemon had %d, then %d while %d were sent", was, most, descriptors)
	if descriptors < 4*floodSlack {
		t.row.U[3].fail("only %d descriptors were sent, %d may be open: the scenario proves nothing", descriptors,
			floodSlack)
	}
	t.goesOn(c)
}
