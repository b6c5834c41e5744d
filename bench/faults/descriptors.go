package faults

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/internal/ipc"
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

// flooded is what a flood came to: messages sent, their descriptors, and sockets that the daemon closed.
type flooded struct{ messages, descriptors, turned uint64 }

// flood sends so many messages.
func (x *flooded) flood(ctx context.Context, socket string, rounds int) {
	null := kit.Get(os.Open("/dev/null"))
	defer null.Close()
	var texts [][]byte
	for _, kind := range []ipc.Kind{ipc.KindVersion, ipc.KindListen, ipc.KindRegister} {
		texts = append(texts, kit.Get((&ipc.Message{ID: 1, Kind: kind, Service: "x", Size: 4096}).Encode()))
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
			*s = kit.Get(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"}))
		}
		fds := make([]int, []int{1, ipc.MaxFDs, ipc.MaxFDs + 1, 64, 253}[i%5])
		for k := range fds {
			fds[k] = int(null.Fd())
		}
		(*s).SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		text := texts[i/5%len(texts)]
		_, _, err := (*s).WriteMsgUnix(text, unix.UnixRights(fds...), nil)
		switch {
		case err == nil:
			x.messages++
			x.descriptors += uint64(len(fds))
		case errors.Is(err, unix.EPERM): // the daemon takes none (SO_PASSRIGHTS): the kernel refused them
			x.descriptors += uint64(len(fds))
			if _, err := (*s).Write(text); err == nil {
				x.messages++
			}
		case !errors.Is(err, os.ErrDeadlineExceeded): // turned away: on with another socket
			x.turned++
			(*s).Close()
			*s = nil
		}
	}
	kit.Check(ctx.Err())
}

func descriptorFlood(t *Trial) {
	c := t.atWork(MixRandom, 2)
	pid := t.cluster.Daemon(0).Pid()
	var x flooded
	var err error
	was, most := restOf(pid).Descriptors, 0
	done := make(chan error, 1)
	go func() {
		done <- kit.Try(func() { x.flood(t.ctx, t.cluster.Socket(0), t.many(floodRounds, floodRounds/4)) })
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
	t.injected("descriptors", x.descriptors)
	t.counted("messages", x.messages)
	t.counted("sockets closed by the daemon", x.turned)
	t.row.Measured["descriptors before"], t.row.Measured["descriptors at most"] = float64(was), float64(most)
	t.check("unrequested descriptors are closed", most-was <= floodSlack,
		"the daemon had %d, then %d while %d were sent", was, most, x.descriptors)
	if x.descriptors < 4*floodSlack {
		t.row.U[3].fail("only %d descriptors were sent, %d may be open: the scenario proves nothing", x.descriptors,
			floodSlack)
	}
	t.goesOn(c)
}
