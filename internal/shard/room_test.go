package shard

import (
	"errors"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Users whose clients take all the connections that they can leave some to others.
func TestConnectionsLeaveRoomForOthers(t *testing.T) {
	const room = 64
	s := unstarted(t, still(t))
	defer s.Shutdown()
	cfg := settings(t)
	ec, err := s.engineConfig(&Options{Config: &cfg, Node: engine.NodeID{1}, Epoch: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	ec.MaxConns = room
	if s.eng, err = engine.New(ec); err != nil {
		t.Fatal(err)
	}
	dial := func(c *Client) error {
		_, err := s.Dial(mono.Now(), c, &ipc.Message{ID: 1, Kind: ipc.KindDial, Peer: "off", Service: "x",
			Timeout: time.Hour})
		return err
	}
	for i, want := range []int{room / 2, room / 4, room / 8, room / 16} {
		u := NewUser(uint32(i))
		clients := []*Client{attached(t, s, u, room), attached(t, s, u, room)}
		had := 0
		for ; dial(clients[had%2]) == nil; had++ {
		}
		if had != want {
			t.Errorf("user %d has %d connections, want %d", i, had, want)
		}
		e, ok := errors.AsType[*ipc.Error](dial(clients[0]))
		if !ok || e.Code != ipc.CodeLimit {
			t.Errorf("refused with %v", e)
		}
	}
}

// A user's clients share a limit of exports, and have their part again when one that had most of it ends, also those of
// connections that were forgotten before their keys were revoked.
func TestExportsOfAUser(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	s.limits.Exports = 8
	const most = exportShare * 8
	u := NewUser(1)
	var r *regmem.Region
	export := func(c *Client) error {
		m := &ipc.Message{ID: 1, Kind: ipc.KindExport, Region: r.ID, Perm: uint8(regmem.RemoteRead), Size: 1}
		m.Domain = 1
		_, err := s.Export(mono.Now(), c, m)
		return err
	}
	var all []*Client
	had := 0
	for range exportShare + 1 {
		c := attached(t, s, u, 1)
		c.Features = ipc.FeatureDomains
		r = &regmem.Region{Mem: regmem.Wrap(make([]byte, 4096))}
		c.regions.add(r, 1)
		c.regions.finish(r)
		for ; export(c) == nil; had++ {
		}
		all = append(all, c)
	}
	if last := all[exportShare]; had != most || last.exports != 0 {
		t.Errorf("a user has %d exports, want %d; the last client has %d", had, most, last.exports)
	}
	now := mono.Now()
	all[0].exported(1) // of a connection that is forgotten: nobody counts when its key is revoked
	s.detach(now, all[0])
	for rounds := 0; s.clients.dying > 0 && rounds < 10; rounds++ {
		s.Iterate(now)
	}
	if n := u.exports.Load(); n != most-8 {
		t.Errorf("%d exports are left of %d, want 8 fewer", n, most)
	}
	if err := export(all[exportShare]); err != nil {
		t.Error(err)
	}
}
