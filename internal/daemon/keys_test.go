package daemon

import (
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// Keys of real daemons are fresh, and operations go on over the change.
func TestDaemonFreshKeys(t *testing.T) {
	a, b := nodesIn(t, config.Encrypted, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	_, atClient := connect(t, server, client, "a", "mem")
	for _, e := range []*Embedded{a, b} {
		for _, s := range e.d.shards {
			must(t, s.Do(func(now mono.Time) { s.Engine().RenewKeys(now) }))
		}
	}
	until(t, "fresh keys at both ends", deadline, func() bool {
		for _, e := range []*Embedded{a, b} {
			n := uint64(0)
			for _, s := range e.d.shards {
				if s.Do(func(mono.Time) { n += s.Engine().Count.Trust.KeyExchanges }) != nil || n == 0 {
					return false
				}
			}
		}
		return true
	})
	_ = atClient
	dialAccept(t, server, client, "a", "mem") // a request and its answer go over the session with the fresh keys
	for _, s := range a.d.shards {
		if err := s.Do(func(mono.Time) {
			if n := s.Engine().Count; n.Life.SessionsFailed != 0 || n.Life.SessionsOpened != 1 {
				t.Errorf("%d sessions opened, %d failed", n.Life.SessionsOpened, n.Life.SessionsFailed)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A client has so many dials that wait, and one more when one was answered.
func TestDialsLimit(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Dials, c.DialTimeout = 2, 30*time.Millisecond })
	c := attach(t, a, 64)
	dial := &ipc.Message{Kind: ipc.KindDial, Peer: "nobody", Service: "s"}
	first, second := c.send(dial), c.send(dial)
	c.fails(dial, ipc.CodeLimit)
	for _, id := range []uint64{first, second} {
		if _, err := c.reply(id); err == nil {
			t.Error("a dial to nobody was answered")
		}
	}
	c.fails(dial, ipc.StatusPeerUnknown.Code())
}
