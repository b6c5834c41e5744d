package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/regmem"
)

// identities makes a key of each node from the seed; every node authorises every other. Without Options.Secure all are
// nil.
func (w *World) identities() []*secure.Node {
	ids := make([]*secure.Node, w.opt.Nodes)
	if !w.opt.Secure {
		return ids
	}
	rng := stream(w.opt.Seed, identityStream)
	var keys []secure.PrivateKey
	var all []secure.Peer
	for i := range ids {
		var k secure.PrivateKey
		seededReader{rng}.Read(k[:])
		keys = append(keys, k)
		all = append(all, secure.Peer{Name: nodeName(i), Key: k.Public()})
	}
	for i := range ids {
		others := slices.Delete(slices.Clone(all), i, i+1)
		peers, err := secure.NewPeers(others...)
		if err != nil {
			panic("BUG: sim: " + err.Error())
		}
		ids[i] = secure.NewNode(keys[i], peers)
	}
	return ids
}

func nodeName(i int) string { return fmt.Sprintf("node%d", i) }

// Name is what other nodes dial.
func (n *Node) Name() string { return nodeName(n.Index) }

// ID is the node's identity, the same after every boot.
func (n *Node) ID() engine.NodeID {
	if n.id != nil {
		return n.id.Public.Node()
	}
	return engine.NodeID{7: byte(n.Index + 1)}
}

// Boot starts the node's engine anew, with another epoch; what it knew is gone. It offers the services that it offered
// before. The keys of its memory are drawn as in every boot: worse than chance would have it, new memory stands under
// the keys of the old.
func (n *Node) Boot() {
	o := n.w.opt
	n.boot++
	n.Down = false
	n.Grants = regmem.NewTable(seededReader{rand.New(rand.NewPCG(o.Seed, uint64(n.Index)<<32|1))})
	e, err := engine.New(engine.Config{
		Node: n.ID(), Name: n.Name(), Epoch: n.boot, Seed: o.Seed ^ uint64(n.Index+1)<<40 ^ n.boot,
		Scheduler: o.Scheduler, Profile: o.Profile,
		OpWindow: o.OpWindow, HeldBytes: o.HeldBytes, Checksum: o.Checksum, Grants: n.Grants, DeadTime: o.DeadTime,
		KeepAlive: o.KeepAlive, Secure: n.id, CopiedMost: o.CopiedMost,
		Keys: engine.KeyLimits{Frames: o.Rekey}, Deferred: o.Deferred, DropMisses: o.Misses.Drop,
	})
	if err != nil {
		panic("BUG: sim: " + err.Error())
	}
	n.E, n.Events = e, nil
	for _, s := range n.services {
		e.Listen(s)
	}
	for i := range o.Links + o.IP.Lanes {
		n.SetLink(i, o.MTU)
	}
	if o.IP.Lanes > 0 {
		n.tell()
	}
}

// Crash ends the engine without a word to anybody. Boot brings the node back.
func (n *Node) Crash() {
	n.Down = true
	n.Crashes++
	n.CrashedAt = n.w.Now
	n.E.Stop()
	finish(n.E)
}

// takeSteps has the engine's handshakes computed; each result comes back a while later, whatever the engine is at then.
func (n *Node) takeSteps() {
	e := n.E
	for _, strangers := range []bool{false, true} {
		for st := e.NextStep(strangers); st != nil; st = e.NextStep(strangers) {
			st.Do()
			n.w.After(time.Duration(50_000+n.w.steps.IntN(500_000)), func() {
				if e.Stepped(n.w.Now, st); n.Down || e != n.E {
					finish(e)
				}
			})
		}
	}
}

// finish computes what is left of an engine that was stopped.
func finish(e *engine.Endpoint) {
	for _, strangers := range []bool{false, true} {
		for st := e.NextStep(strangers); st != nil; st = e.NextStep(strangers) {
			st.Do()
			e.Stepped(0, st)
		}
	}
}

// Offer makes a service available, now and after every boot.
func (n *Node) Offer(service string) {
	if !slices.Contains(n.services, service) {
		n.services = append(n.services, service)
	}
	if !n.Down {
		n.E.Listen(service)
	}
}

// SetLink brings link i up with an MTU, that of IP links is always the same.
func (n *Node) SetLink(i, mtu int) {
	if i >= n.w.opt.Links {
		n.setLane(i)
		return
	}
	if n.w.opt.IP.Only {
		return
	}
	n.up |= 1 << i
	c := engine.LinkConfig{Name: fmt.Sprintf("edge%d", i), Addr: frame.Ether(n.mac(i)), MTU: mtu,
		RxSlots: n.w.opt.Slots,
		Shuffle: n.w.opt.Shuffle}
	if n.w.joins(n.Index, i) {
		c.Super, c.Overhead = 1<<16, overhead
	}
	_ = n.E.SetLink(n.w.Now, i, c)
}

// joins reports whether a node's link takes datagrams.
func (w *World) joins(node, link int) bool { return w.opt.Joins>>(8*node+link)&1 != 0 }

// RemoveLink takes link i away: nothing arrives on it any more.
func (n *Node) RemoveLink(i int) {
	n.up &^= 1 << i
	n.E.RemoveLink(n.w.Now, i)
}

func (n *Node) mac(i int) [6]byte { return [6]byte{2, 0, 0, 0, byte(i), byte(n.Index + 1)} }

type seededReader struct{ *rand.Rand }

func (r seededReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return len(p), nil
}

// Connect opens a connection from node a to node b, both ends open when it returns.
func (w *World) Connect(a, b *Node, o engine.DialOptions) (ca, cb engine.ConnID, err error) {
	b.Offer("test")
	ha, hb := a.Handle, b.Handle
	defer func() { a.Handle, b.Handle = ha, hb }()
	var failed *engine.Event
	a.Handle = func(ev *engine.Event) {
		switch ev.Kind {
		case engine.EvConnected:
			ca = ev.Conn
		case engine.EvClosed:
			failed = ev
		}
	}
	b.Handle = func(ev *engine.Event) {
		if ev.Kind == engine.EvIncoming {
			cb = ev.Conn
			b.E.Accept(w.Now, ev.Conn, nil)
		}
	}
	if _, err = a.E.Dial(w.Now, b.Name(), "test", o); err != nil {
		return
	}
	err = w.Run(2*time.Minute, func() bool { return ca != 0 && cb != 0 || failed != nil })
	if err == nil && failed != nil {
		err = fmt.Errorf("dial failed: %v %s", failed.Status, failed.Text)
	}
	return
}
