package daemon

import (
	"os"
	"sync"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// dueOf returns when the user's next request is in time; from sets it, if it is not zero.
func dueOf(e *Embedded, hello bool, from time.Time) time.Time {
	a := e.d.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pacersOf(time.Now(), uint32(os.Getuid()))
	of := &p.rest
	if hello {
		of = &p.hello
	}
	if !from.IsZero() {
		of.due = from
	}
	return of.due
}

// A request whose work grows with an argument costs its user as many requests: measurements of a ping, memory that is
// filled and pinned, tables of a space.
func TestWorkIsPaidFor(t *testing.T) {
	const perSecond = 1000
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Requests = perSecond })
	c := open(t, a)
	hello := ipc.Hello(64)
	hello.Features = ipc.FeatureSpaces
	_, fds, err := c.exchange(hello)
	ipc.CloseFDs(fds)
	must(t, err)
	do := func(m *ipc.Message) *ipc.Message {
		t.Helper()
		reply, fds, err := c.exchange(m)
		ipc.CloseFDs(fds)
		must(t, err)
		return reply
	}
	const pings, pinned, space = 12, pinnedPerRequest, uint64(1 << 38)
	for _, tc := range []struct {
		name string
		do   func()
		want time.Duration // requests
	}{
		{"pings", func() {
			do(&ipc.Message{Kind: ipc.KindPing, Peer: "nobody", Count: pings, Timeout: time.Millisecond})
		}, pings},
		{"memory", func() {
			r := do(&ipc.Message{Kind: ipc.KindRegister, Size: pinned})
			do(&ipc.Message{Kind: ipc.KindMapped, Region: r.Region})
			do(&ipc.Message{Kind: ipc.KindDeregister, Region: r.Region})
		}, 4},
		{"tables", func() {
			do(&ipc.Message{Kind: ipc.KindMap, Size: space, Space: ipc.Space{Pin: 1 << 20, Chunk: 64 << 10}})
		}, 1 + time.Duration(space/(64<<10)/8/tablePerRequest)},
	} {
		before := dueOf(a, false, time.Now()) // a pause of more than a second from here on would only add to the cost
		tc.do()
		if got := dueOf(a, false, time.Time{}).Sub(before); got < tc.want*time.Second/perSecond {
			t.Errorf("%s cost %.0f requests, want %d", tc.name, got.Seconds()*perSecond, tc.want)
		}
	}
}

// Memory is paid for before it is filled: who waits for the shard meanwhile has paid.
func TestMemoryIsPaidForInAdvance(t *testing.T) {
	const perSecond, size = 1000, 4 * pinnedPerRequest
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Requests = perSecond })
	c := connectABI(t, a, eras[2])
	c.hello()
	fd, _ := c.memfd(size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW, 0)
	defer unix.Close(fd)
	until(t, "hold of a", deadline, func() bool { return a.d.shard.Hold() })
	release := sync.OnceFunc(a.d.shard.Release)
	defer release()
	before := dueOf(a, false, time.Now())
	b := packet(32, 2)
	le.PutUint64(b[16:], size)
	le.PutUint32(b[24:], 1)
	id := c.send(b, fd)
	until(t, "what it costs is charged", deadline, func() bool {
		return dueOf(a, false, time.Time{}).Sub(before) >= (1+size/pinnedPerRequest)*time.Second/perSecond
	})
	release()
	if _, _, status, text := c.reply(id, 2); status != 0 {
		t.Errorf("%d, %s", status, text)
	}
}

// Work that was begun is paid for though it fails: memory that cannot be fixed, or was fixed and cannot be added to the
// client's; tables of a space that cannot be added.
func TestRefusedWorkIsPaidFor(t *testing.T) {
	const perSecond, requests = 1000, 16
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Requests, c.Limits.Regions = perSecond, 1 })
	costs := func(name string, requests time.Duration, do func()) {
		t.Helper()
		before := dueOf(a, false, time.Now()) // a pause of more than a second from here on would only add to the cost
		do()
		if got := dueOf(a, false, time.Time{}).Sub(before); got < requests*time.Second/perSecond {
			t.Errorf("%s cost %.0f requests, want %d", name, got.Seconds()*perSecond, requests)
		}
	}
	c := attach(t, a, 64)
	id, _ := c.offer(requests * pinnedPerRequest)
	if _, err := unix.FcntlInt(uintptr(c.regions[0].FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	costs("memory that cannot be sealed", requests, func() {
		c.fails(&ipc.Message{Kind: ipc.KindMapped, Region: id}, ipc.CodeInvalid)
	})

	own := connectABI(t, a, eras[2])
	own.hello()
	adopt := func(size int) (status uint32) {
		fd, _ := own.memfd(size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW, 0)
		defer unix.Close(fd)
		b := packet(32, 2)
		le.PutUint64(b[16:], uint64(size))
		le.PutUint32(b[24:], 1)
		_, _, status, _ = own.reply(own.send(b, fd), 2)
		return status
	}
	if status := adopt(4096); status != 0 {
		t.Fatal(status)
	}
	costs("memory of a client that has all its regions", requests, func() {
		if adopt(requests*pinnedPerRequest) == 0 {
			t.Error("one more was taken")
		}
	})

	spacious := open(t, a)
	hello := ipc.Hello(64)
	hello.Features = ipc.FeatureSpaces
	_, fds, err := spacious.exchange(hello)
	ipc.CloseFDs(fds)
	must(t, err)
	space := func() error {
		const size = mostHints * 8 * (64 << 10)
		_, fds, err := spacious.exchange(&ipc.Message{Kind: ipc.KindMap, Size: size,
			Space: ipc.Space{Pin: 1 << 20, Chunk: 64 << 10}})
		ipc.CloseFDs(fds)
		return err
	}
	must(t, space())
	costs("a space of a client that has all its regions", mostHints/tablePerRequest, func() {
		if space() == nil {
			t.Error("one more was made")
		}
	})
}

// A client that goes while its request waits leaves at once, and the next of its user does not wait for that request.
func TestDeadClientsDoNotWait(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Requests = 1 }) // a greeting waits for 39 s
	c := open(t, a)
	must(t, c.conn.Send(ipc.Hello(64)))
	until(t, "the greeting waits", deadline, func() bool { return dueOf(a, true, time.Time{}).After(time.Now()) })
	c.close()
	until(t, "the control connection is over", deadline, func() bool {
		a.d.mu.Lock()
		defer a.d.mu.Unlock()
		return len(a.d.controls) == 0
	})
	if due := dueOf(a, true, time.Time{}); due.After(time.Now()) {
		t.Errorf("the next greeting waits for %v", time.Until(due))
	}
}
