package daemon

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/shard"
	"multiedge/regmem"
)

// pingsOf counts the pings that a daemon has under way.
func pingsOf(n *Embedded) int { return shard.Inside{Shard: n.d.shard}.Pings() }

// A client that dies while it waits for a ping is forgotten at once.
func TestDeathWhilePinging(t *testing.T) {
	_, b := nodes(t, 1, nil)
	pinned := regmem.Pinned()
	c := attach(t, b, 64)
	c.register(1 << 20)
	c.must(&ipc.Message{Kind: ipc.KindListen, Service: "mine"})
	c.send(&ipc.Message{Kind: ipc.KindPing, Peer: "nobody", Count: 1, Timeout: time.Hour})
	until(t, "the ping", deadline, func() bool { return pingsOf(b) == 1 })
	c.close()
	until(t, "memory unpinned", deadline, func() bool { return regmem.Pinned() == pinned })
}

// Pings end with the control connection that asked for them.
func TestPingsOfTheGone(t *testing.T) {
	_, b := nodes(t, 1, nil)
	for range 5 {
		c := attach(t, b, 64)
		c.send(&ipc.Message{Kind: ipc.KindDial, Peer: "nobody", Service: "x", Timeout: 30 * time.Millisecond})
		c.send(&ipc.Message{Kind: ipc.KindPing, Peer: "nobody", Timeout: time.Hour})
		until(t, "the ping", deadline, func() bool { return pingsOf(b) > 0 })
		c.close()
		until(t, "the end of the ping", deadline, func() bool { return pingsOf(b) == 0 })
	}
	until(t, "clients and connections gone", deadline, func() bool {
		snap := snapshot(t, b.d)
		return len(snap.Clients)+len(snap.Conns) == 0
	})
}

// The answer to many pings that failed fits in a message.
func TestManyPings(t *testing.T) {
	_, b := nodes(t, 1, nil)
	c := attach(t, b, 64)
	if _, err := c.call(&ipc.Message{Kind: ipc.KindPing, Peer: strings.Repeat("n", 60), Count: 1000,
		Timeout: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
}

// Pings are no connections: those that are answered and those that are not leave the counters of connections alone, at
// either end.
func TestPingsAreNotCounted(t *testing.T) {
	inBothForms(t, func(t *testing.T, security string) {
		a, b := nodesIn(t, security, 1, nil)
		c := attach(t, b, 64)
		if r := c.must(&ipc.Message{Kind: ipc.KindPing, Peer: "a", Count: 3, Timeout: deadline}); strings.Count(
			string(r.Body), `"ok"`) != 3 {
			t.Errorf("%s", r.Body)
		}
		c.must(&ipc.Message{Kind: ipc.KindPing, Peer: "nobody", Timeout: time.Millisecond})
		for _, n := range []*Embedded{a, b} {
			snap := snapshot(t, n.d)
			if k := &snap.Counters; k.Life.ConnectionsOpened != 0 || k.Life.ConnectionsClosed != 0 {
				t.Errorf("opened %d, closed %d", k.Life.ConnectionsOpened, k.Life.ConnectionsClosed)
			}
		}
	})
}
