package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// What a node makes of Hello in its own name (clause 4.1).

// claims lists the addresses that a node was told of.
func claims(n *node) (addrs []string) {
	for _, ev := range n.events {
		if ev.Kind == engine.EvClaim {
			addrs = append(addrs, ev.Text)
		}
	}
	return addrs
}

// ownHello gives node 0 a Hello of its own identity.
func (r *rig) ownHello(sealed bool, src [6]byte, epoch uint64) {
	h := helloOf(0, 0, 1500, epoch)
	if !sealed {
		h.Node, h.Flags = engine.NodeID{7: 1}, 0
	}
	h.Flags |= wire.HelloAnswer
	r.give(0, flight{b: raw(src, [6]byte{255, 255, 255, 255, 255, 255}, wire.Header{Type: wire.TypeHello},
		h.AppendTo(nil))})
}

// Of two hosts with one identity each is told of the other, once a minute, and no more comes of it.
func TestTwins(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		o := rigOptions{sealed: sealed}
		r := newRig(t, o)
		cfg := engine.Config{Node: engine.NodeID{7: 1}, Name: "node0", Epoch: 2, Seed: 9,
			Grants: regmem.NewTable(new(counting))}
		if sealed {
			cfg.Secure = secureNode(t, 0, &o)
			cfg.Node = idOf(0)
		}
		var err error
		if r.n[1].e, err = engine.New(cfg); err != nil {
			t.Fatal(err)
		}
		if err := r.n[1].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(1, 0)), MTU: 1500,
			RxSlots: 256}); err != nil {
			t.Fatal(err)
		}
		r.rest(100 * time.Second)
		for i, n := range r.n {
			snap := n.e.Snapshot(r.now)
			if told := claims(n); len(told) != 2 || told[0] != frame.Ether(macOf(1-i, 0)).String() {
				t.Errorf("node %d was told of %v", i, told)
			}
			if c := snap.Claim; snap.Counters.Trust.IdentityClaims < 80 || c.Addr != frame.Ether(macOf(1-i, 0)) ||
				c.Link != 0 ||
				c.Ago < 0 || c.Ago > 2*time.Second {
				t.Errorf("node %d: %d claims, the latest %+v", i, snap.Counters.Trust.IdentityClaims, c)
			}
			if len(snap.Peers) != 0 {
				t.Errorf("node %d takes itself for a peer: %+v", i, snap.Peers)
			}
		}
	})
}

// What a node itself said, in this run or an earlier one, is no claim when a loop or a slow network brings it back.
func TestOwnHelloIsNoClaim(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed, links: 2})
		other := [6]byte{2, 6, 6, 6, 6, 6}
		for range 9 { // of an earlier run, from an address that is gone
			r.ownHello(sealed, other, 77)
			r.rest(time.Second)
		}
		r.rest(2 * time.Second)
		r.ownHello(sealed, macOf(0, 0), 1)
		r.ownHello(sealed, other, 1)
		r.ownHello(sealed, macOf(0, 1), 77)
		r.n[0].e.RemoveLink(r.now, 1)
		r.ownHello(sealed, macOf(0, 1), 77)
		if n := r.n[0].e.Count.Trust.IdentityClaims; n != 0 || len(claims(r.n[0])) != 0 {
			t.Errorf("%d claims, told of %v", n, claims(r.n[0]))
		}
		r.ownHello(sealed, other, 77)
		if n := r.n[0].e.Count.Trust.IdentityClaims; n != 1 || len(claims(r.n[0])) != 1 {
			t.Errorf("a claim makes %d, told of %v", n, claims(r.n[0]))
		}
	})
}

// Whoever floods a node with Hello in its own name, from ever new addresses, makes it say one word a minute and
// remember the latest.
func TestFloodOfClaims(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed})
		r.rest(20 * time.Second)
		before, peers := r.n[0].e.TableSizes(), len(r.n[0].e.Snapshot(r.now).Peers)
		const n = 5_000
		mac := func(i int) [6]byte { return [6]byte{2, 6, 6, byte(i >> 16), byte(i >> 8), byte(i)} }
		for i := range n {
			r.ownHello(sealed, mac(i), uint64(1000+i))
		}
		snap := r.n[0].e.Snapshot(r.now)
		if told := claims(r.n[0]); len(told) != 1 || told[0] != frame.Ether(mac(0)).String() {
			t.Errorf("told of %v", told)
		}
		if snap.Counters.Trust.IdentityClaims != n || snap.Claim.Addr != frame.Ether(mac(n-1)) {
			t.Errorf("%d claims, the latest %+v", snap.Counters.Trust.IdentityClaims, snap.Claim)
		}
		if after := r.n[0].e.TableSizes(); after != before || len(snap.Peers) != peers {
			t.Errorf("tables %+v, were %+v; %d peers, were %d", after, before, len(snap.Peers), peers)
		}
		r.rest(time.Minute)
		r.ownHello(sealed, mac(n), 5)
		if told := claims(r.n[0]); len(told) != 2 || told[1] != frame.Ether(mac(n)).String() {
			t.Errorf("a minute later: told of %v", told)
		}
	})
}

// Each shard of a node is told of a Hello; one counts it.
func TestClaimIsCountedOnce(t *testing.T) {
	for shard := range 2 {
		r := newRig(t, rigOptions{})
		var err error
		r.n[0].e, err = engine.New(engine.Config{Node: engine.NodeID{7: 1}, Epoch: 1, Grants: r.n[0].grants,
			Shard: shard, Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.n[0].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(0, 0)),
			MTU: 1500}); err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(time.Minute)
		r.ownHello(false, [6]byte{2, 6, 6, 6, 6, 6}, 77)
		if n := r.n[0].e.Count.Trust.IdentityClaims; n != uint64(1-shard) {
			t.Errorf("shard %d counts %d", shard, n)
		}
	}
}
