package daemon

import (
	"os"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

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
	uid := uint32(os.Getuid())
	due := func(from time.Time) time.Time {
		a.d.accounts.mu.Lock()
		defer a.d.accounts.mu.Unlock()
		p := &a.d.accounts.pacersOf(time.Now(), uid).rest
		if !from.IsZero() {
			p.due = from
		}
		return p.due
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
		before := due(time.Now()) // a pause of more than a second from here on would only add to what is seen
		tc.do()
		if got := due(time.Time{}).Sub(before); got < tc.want*time.Second/perSecond {
			t.Errorf("%s cost %.0f requests, want %d", tc.name, got.Seconds()*perSecond, tc.want)
		}
	}
}
