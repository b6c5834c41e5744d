package fabric

import (
	"fmt"
	"math/rand/v2"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/regmem"
)

// engines are hosts that run the production engine, over sealed IP links.
type engines struct {
	n    *Net
	list []*engineHost
	// of all flows together: nobody looks at it, and it stays in the processor's caches
	source, sink []byte
	conns        []connection // by channel
	open         int          // connections that are
}

// connection is what a channel is to engines.
type connection struct {
	from, to engine.ConnID
	key      regmem.Key // of the sink
}

// engineHost is one of them.
type engineHost struct {
	*engines
	index   int32
	e       *engine.Endpoint
	grants  *regmem.Table
	batches engine.Batches
	id      engine.NodeID
	dialled map[engine.ConnID]bool // by this host; true: they are open
	ports   ports
	from    frame.Addr // of the packet that the engine is taking
	blocked bool
	alarm   mono.Time // for which an event is scheduled
}

const (
	// piece is how long the writes are that a flow consists of.
	piece = 256 << 10
	// batch is how many frames an engine makes at once.
	batch = 2
	// around is what a frame takes of a link besides: headers of IPv4 and UDP, and Ethernet.
	around = 20 + 8 + ethernet
)

// linkMTU is the MTU that an IPv4 link has (linkdrv).
func linkMTU(mtu int) int { return mtu - 20 - 8 - frame.HeaderLen }

func newEngines(n *Net) (*engines, error) {
	x := &engines{n: n, source: make([]byte, piece), sink: make([]byte, piece),
		conns: make([]connection, len(n.opt.Channels))}
	ids, err := n.identities()
	if err != nil {
		return nil, err
	}
	for i := range n.opt.Hosts {
		h := &engineHost{engines: x, index: int32(i), alarm: never, dialled: map[engine.ConnID]bool{}}
		if err := h.boot(ids[i]); err != nil {
			return nil, err
		}
		x.list = append(x.list, h)
		n.hosts = append(n.hosts, h)
	}
	return x, nil
}

// identities makes the keys of all hosts. Each host authorises those that it has a channel with.
func (n *Net) identities() ([]*secure.Node, error) {
	keys := make([]secure.PrivateKey, n.opt.Hosts)
	for i := range keys {
		dice := seeded{rand.New(rand.NewPCG(n.opt.Seed, uint64(i)<<8|1))}
		_, _ = dice.Read(keys[i][:])
	}
	known := make([]map[int]bool, n.opt.Hosts)
	peers := make([][]secure.Peer, n.opt.Hosts)
	meet := func(a, b int) {
		if known[a] == nil {
			known[a] = map[int]bool{}
		}
		if !known[a][b] {
			known[a][b] = true
			peers[a] = append(peers[a], secure.Peer{Name: hostName(b), Key: keys[b].Public()})
		}
	}
	for _, c := range n.opt.Channels {
		meet(c.From, c.To)
		meet(c.To, c.From)
	}
	ids := make([]*secure.Node, n.opt.Hosts)
	for i := range ids {
		list, err := secure.NewPeers(peers[i]...)
		if err != nil {
			return nil, err
		}
		ids[i] = secure.NewNode(keys[i], list)
	}
	return ids, nil
}

func hostName(i int) string { return fmt.Sprintf("host%d", i) }

// boot starts the engine of a host.
func (h *engineHost) boot(id *secure.Node) (err error) {
	o := &h.n.opt
	h.grants = regmem.NewTable(seeded{rand.New(rand.NewPCG(o.Seed, uint64(h.index)<<8|2))})
	h.id = id.Public.Node()
	h.e, err = engine.New(engine.Config{Node: h.id, Name: hostName(int(h.index)), Epoch: 1,
		Seed: scatter(o.Seed ^ uint64(h.index)<<32), Profile: o.Profile, Grants: h.grants, Secure: id})
	if err != nil {
		return err
	}
	h.ports.open(o.Lanes)
	for l := range o.Lanes {
		h.batches.Set(l, engine.NewBatch(batch, linkMTU(o.MTU)))
		if err := h.e.SetLink(h.n.Now, l, engine.LinkConfig{Name: fmt.Sprint("lane", l), Addr: front(h.index),
			MTU: linkMTU(o.MTU), RxSlots: rxSlots, Below: around - ethernet + frame.HeaderLen, ECN: o.Mark > 0,
			Ports: o.Lanes > 1, Congestion: flowctl.IPCongestion("auto"), Group: "fabric"}); err != nil {
			return err
		}
	}
	return nil
}

// rxSlots is what each link announces: as much as a socket with a buffer of 8 MiB holds.
const rxSlots = 4096

// seeded is a reproducible source of keys.
type seeded struct{ *rand.Rand }

func (r seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return len(p), nil
}

// receive implements host.
func (h *engineHost) receive(p *packet) {
	ecn := frame.NotECT
	switch {
	case p.marked:
		ecn = frame.CE
	case p.capable:
		ecn = frame.ECT0
	}
	if lane, from, ok := h.ports.receiver(p); ok {
		h.from = from
		h.e.Handle(h.n.Now, lane, engine.Arrival{Rx: frame.Rx{Head: p.frame, Origin: &h.from, ECN: ecn}})
		h.turn()
	}
}

// wake implements host.
func (h *engineHost) wake() {
	if h.n.Now < h.alarm {
		return // it was set anew meanwhile
	}
	h.alarm = never
	h.turn()
}

// room implements host.
func (h *engineHost) room() {
	if h.blocked {
		h.block(false)
		h.turn()
	}
}

func (h *engineHost) block(on bool) {
	h.blocked = on
	for l := range h.n.opt.Lanes {
		h.e.SetLinkBlocked(l, on)
	}
}

// counts implements host.
func (h *engineHost) counts(t *Tally) {
	t.Again += h.e.Count.Loss.FramesRetransmitted
	t.Payload += h.e.Count.Traffic.PayloadReceived
}

// turn lets the engine do what it can do now (engine, doc.go).
func (h *engineHost) turn() {
	n := h.n
	next := h.e.NextTimeout()
	if next <= n.Now {
		h.e.HandleTimeout(n.Now)
	}
	h.transmit()
	for ev := (engine.Event{}); h.e.PollEvent(&ev); {
		if h.takeEvent(&ev); !h.blocked {
			h.transmit()
		}
	}
	if next = h.e.NextTimeout(); next <= n.Now {
		if h.blocked {
			return // what is due cannot leave; room comes
		}
		next = n.Now + 1
	}
	if next < h.alarm {
		h.alarm = next
		n.agenda.add(next, wakes, h.index)
	}
}

// transmit gives the NIC what the engine has, as long as that takes it.
func (h *engineHost) transmit() {
	n := h.n
	nic := &n.ports[h.index]
	for link, socket, ok := h.e.Drawn(); ok; link, socket, ok = h.e.Drawn() {
		h.ports.draw(link, socket)
	}
	for !h.blocked && h.e.PollTransmit(n.Now, &h.batches) > 0 {
		for link, f := range h.batches.All() {
			p := n.packet()
			p.frame = f.AppendTo(p.frame)
			p.from, p.size, p.capable = h.index, len(p.frame)+around, f.Capable
			p.fromPort = h.ports.sender(link, &f.To)
			if p.to, p.toPort = hostOf(&f.To); int(p.to) >= n.opt.Hosts {
				n.fault("host %d sends to %v", h.index, f.To)
				return
			}
			p.hash = n.flowHash(p.from, p.to, uint64(p.fromPort), uint64(p.toPort))
			n.send(p)
		}
		h.batches.Reset()
		if nic.held >= n.nicFull() {
			h.block(true)
		}
	}
}

// begin implements host. The last write waits for the ones before it, so that its notification says that all are there.
func (h *engineHost) begin(f *Flow) {
	c := &h.conns[f.Channel]
	op := engine.Op{Kind: engine.OpWrite, Key: c.key, Imm: uint32(f.number), Token: uint64(f.number)}
	if h.n.opt.Verify {
		f.src, f.mem = make([]byte, f.Size), make([]byte, f.Size)
		_, _ = seeded{rand.New(rand.NewPCG(h.n.opt.Seed, uint64(f.number)<<8|3))}.Read(f.src)
		op.Key = h.export(f.Channel, f.mem)
	}
	for off := 0; off < f.Size; off += piece {
		size := min(piece, f.Size-off)
		if op.Local = h.source[:size]; f.src != nil {
			op.Local, op.Off = f.src[off:off+size], uint64(off)
		}
		if off+size == f.Size {
			op.Flags = engine.BackwardFence | engine.Notify
		}
		if !h.e.Submit(h.n.Now, c.from, &op) {
			h.n.fault("the engine does not take flow %d, of %d bytes", f.number, f.Size)
			return
		}
	}
	h.turn()
}

// export lets the sender of a channel write to memory of its receiver.
func (x *engines) export(channel int, mem []byte) regmem.Key {
	to := x.list[x.n.opt.Channels[channel].To]
	key, err := to.grants.Grant(&regmem.Region{ID: uint32(channel) + 1, Mem: regmem.Wrap(mem)},
		uint64(x.conns[channel].to), regmem.RemoteWrite, 0, uint64(len(mem)))
	if err != nil {
		x.n.fault("host %d exports nothing: %w", to.index, err)
	}
	return key
}

func (x *engines) stop() {
	for _, h := range x.list {
		h.e.Stop()
	}
}
