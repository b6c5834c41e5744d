package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// rogue is node 0 as an authorised peer that says whatever is well formed, and node 1, which keeps to the rules.
type rogue struct {
	*rig
	rng    *rand.Rand
	like   []byte
	pn     uint64
	conns  []rogueConn
	keys   map[regmem.Key][]byte // memory of node 1, with guards around it
	bufs   map[uint64][]byte     // posted
	queue  engine.QueueID
	region *regmem.Region // of all memory of node 1
	pages  *roguePages    // of exported memory, and of that of its own operations; nil: it is there
	token  uint64
	inUse  int            // redirections
	backed *regmem.Region // of own memory with pages
	seen   int
	heard  uint64 // the largest packet number of node 1's
	slots  [8][]byte
}

type rogueConn struct {
	c           [2]engine.ConnID
	keys        []regmem.Key
	base, limit uint32 // of node 0's operations and messages, as told last
	composed    uint32 // number of the oldest message that is being composed, or thereabouts
}

const (
	rogueMemory = 600
	rogueGuard  = 64
)

func newRogue(t *testing.T, seed uint64) *rogue {
	rng := rand.New(rand.NewPCG(seed, 6))
	w := &rogue{rig: newRig(t, rigOptions{window: []int{4, 64}[rng.IntN(2)], held: []int{4000, 1 << 20}[rng.IntN(2)],
		mtu: 9000}), rng: rng, keys: map[regmem.Key][]byte{}, bufs: map[uint64][]byte{},
		region: &regmem.Region{ID: 1}}
	e := w.n[1].e
	w.queue = e.NewReceiveQueue()
	exported := &regmem.Region{ID: 1}
	if rng.IntN(2) == 0 {
		w.pages = &roguePages{w: w, wanted: map[uint64]bool{}}
		exported.Back = w.pages
		w.backed = &regmem.Region{ID: 2, Back: w.pages}
	}
	for i := range 4 {
		k := rogueConn{c: w.connect(engine.DialOptions{Ordered: i == 3})}
		for range 2 {
			mem := w.memory(rogueMemory)
			key, err := w.n[1].grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(mem), Back: exported.Back},
				uint64(k.c[1]), both|regmem.RemoteAtomic, 0, rogueMemory)
			if err != nil {
				t.Fatal(err)
			}
			w.keys[key] = mem
			k.keys = append(k.keys, key)
		}
		if i%2 == 1 {
			e.JoinReceiveQueue(w.now, k.c[1], w.queue)
		}
		w.conns = append(w.conns, k)
	}
	if rng.IntN(2) == 0 {
		e.SetDomain(w.conns[2].c[1], regmem.Domain(1, 1))
	}
	w.like, w.pn = w.rig.like(w.conns[0].c[0], 1)
	return w
}

// roguePages is memory of which each use finds part absent, by chance, until it has come.
type roguePages struct {
	w      *rogue
	wanted map[uint64]bool
	order  []uint64
}

func (p *roguePages) Touch(off, n, follows uint64, _ regmem.Site) (page uint64, ok bool) {
	if off+n+follows > rogueMemory || off+n < off {
		p.w.t.Fatalf("bytes %d to %d were touched, and %d behind them", off, off+n, follows)
	}
	if n == 0 || p.w.some(3) > 0 {
		return 0, true
	}
	p.Ask(off / 64)
	return off / 64, false
}

func (p *roguePages) Ask(page uint64) (resident, busy bool) {
	if !p.wanted[page] {
		p.wanted[page] = true
		p.order = append(p.order, page)
	}
	return false, false
}

// come makes the page that was asked for first resident.
func (p *roguePages) come() {
	if len(p.order) > 0 {
		page := p.order[0]
		p.order = p.order[1:]
		delete(p.wanted, page)
		p.w.n[1].e.Resident(p.w.now, regmem.Wait{Back: p, Page: page})
	}
}

// memory returns n bytes behind and before a guard.
func (w *rogue) memory(n int) []byte {
	return bytes.Repeat([]byte{0xa5}, n+2*rogueGuard)[rogueGuard : rogueGuard+n]
}

func intact(mem []byte) bool {
	guard := bytes.Repeat([]byte{0xa5}, rogueGuard)
	n := len(mem)
	around := mem[:n+rogueGuard]
	return bytes.Equal(around[n:], guard)
}

func (w *rogue) some(n int) int { return w.rng.IntN(n) }

// place is mostly inside.
func (w *rogue) place() uint64 {
	switch w.some(12) {
	case 0:
		return ^uint64(0) - uint64(w.some(3))
	case 1:
		return rogueMemory - uint64(w.some(20))
	}
	return uint64(w.some(12)) * 50
}

// segment draws one of any kind.
func (w *rogue) segment() wire.Segment {
	k := &w.conns[w.some(len(w.conns))]
	number := k.base + uint32(w.some(6)) - uint32(w.some(10)/9)
	message, composed := k.limit+uint32(w.some(3))-uint32(w.some(4)), k.composed+uint32(w.some(3))
	if w.some(20) == 0 {
		number, composed = w.rng.Uint32(), w.rng.Uint32()
	}
	k.composed += uint32(w.some(8) / 7)
	g := wire.Segment{Conn: uint32(k.c[1]), Op: number, Fence: number - uint32(w.some(4)), Imm: w.rng.Uint32(),
		Flags: uint8(w.some(8)), Key: uint64(k.keys[w.some(2)]), Place: w.place(),
		Data: make([]byte, []int{0, 1, 8, 50, 50, 100, 300}[w.some(7)])}
	if w.some(3) == 0 {
		g.Flags = wire.SegFirst | wire.SegLast | uint8(w.some(2))*wire.SegNotify | uint8(w.some(8)/7)*wire.SegFenced
	}
	if w.some(30) == 0 {
		g.Key = w.rng.Uint64()
	}
	for {
		switch g.Kind = wire.Kind(w.some(30)); g.Kind {
		case wire.KindWrite:
		case wire.KindReadData:
			g.Op = uint32(w.some(12))
		case wire.KindReadRequest:
			g.Size, g.Data = uint64(w.some(400)), nil
		case wire.KindAtomic:
			f := wire.AtomicFunc(1 + w.some(10))
			g.Size, g.Data = wire.AtomicSize(f, 4+4*w.some(2)), make([]byte, 8)
			if f == wire.AtomicCAS {
				g.Data = make([]byte, 16)
			}
		case wire.KindAtomicResult:
			g.Op, g.Flags, g.Data = uint32(w.some(12)), 0, make([]byte, 8)
		case wire.KindSend:
			g.Key, g.Place = uint64(message), uint64(w.some(4)*50)
			g.Flags |= uint8(w.some(3)/2) * wire.SegStrict
		case wire.KindTell:
			g.Key, g.Size, g.Data = uint64(message), []uint64{0, 1, 8, 50, 300, 1 << 31}[w.some(6)], nil
			g.Flags |= wire.SegFirst | wire.SegLast | wire.SegNotify | uint8(w.some(3)/2)*wire.SegStrict
		case wire.KindOpAck:
			g.Op = uint32(w.some(12))
			g.Flags, g.Limit, g.Data = 0, g.Op+uint32(w.some(64)), make([]byte, 8*w.some(2))
		case wire.KindOpNak:
			g.Op, g.Flags, g.Status, g.Data = uint32(w.some(12)), 0, uint8(w.some(30)), nil
		case wire.KindCredit:
			g.Flags, g.Limit, g.Data = uint8(w.some(2)), uint32(w.some(20)), nil
		case wire.KindWant:
			g.Flags, g.Key, g.Data = 0, uint64(message+uint32(w.some(80))), nil
		case wire.KindStage:
			g.Op, g.Flags, g.Stamp, g.Size = composed, 0, uint32(1+w.some(3)), uint64(1+w.some(2)*200)
			g.Place = uint64(w.some(int(g.Size)+63)/64) * 64
			if g.Place >= g.Size {
				g.Place = 0
			}
			g.Data = make([]byte, min(g.Size-g.Place, 64))
		case wire.KindCommit:
			g.From, g.Size, g.Data = composed, uint64(1+w.some(2)*200), []byte{7: byte(w.some(6))}
			g.Bytes, g.Status = uint32(w.some(int(g.Size)+1)), uint8(wire.KindWrite)
			g.Flags |= wire.SegFirst | wire.SegLast
			if w.some(2) == 0 {
				g.Status, g.Key, g.Place = uint8(wire.KindSend), uint64(message), 0
			}
		case wire.KindDiscard, wire.KindUnstaged:
			g.Op, g.Flags, g.Data = composed, 0, nil
		case wire.KindAdvert:
			g.Flags, g.Data, g.Name = 0, nil, []byte("name")[:w.some(5)]
		case wire.KindWithdraw, wire.KindPing, wire.KindProbe, wire.KindEcho:
			g.Flags, g.Data = 0, nil
		case wire.KindClose:
			if w.some(40) > 0 {
				continue
			}
			g.Flags, g.Data, g.Status = 0, nil, uint8(w.some(2)*16)
		default:
			continue
		}
		return g
	}
}

// say has node 1 take a frame of a few segments, or of a bulk one.
func (w *rogue) say() {
	w.pn++
	h := wire.Header{Type: wire.TypeData, Session: session(w.like), PN: w.pn}
	var tail, payload []byte
	var b wire.Bulk
	for n := w.some(3); n >= 0; n-- {
		g := w.segment()
		tail = g.AppendTo(tail)
		if wire.Layouts[g.Kind].Bulk && w.some(2) == 0 {
			h.Flags, payload = wire.FlagBulk, g.Data
			b = wire.Bulk{Kind: g.Kind, Flags: g.Flags, Len: uint16(len(payload)), Conn: g.Conn, Op: g.Op,
				Fence: g.Fence, Key: g.Key, Place: g.Place, Imm: uint32(w.some(600))}
		}
	}
	if w.some(2) == 0 { // acknowledges all that was heard
		tail = (&wire.Segment{Kind: wire.KindAck, Size: w.heard, Place: w.heard + 1}).AppendTo(tail)
	}
	start := wire.TailStart
	if h.Flags != 0 {
		start = wire.HeadLen
	}
	frame := append(bytes.Clone(w.like[:wire.EthLen]), make([]byte, start-wire.EthLen)...)
	if h.Flags != 0 {
		wire.PutBulk(frame[wire.TailStart:], &b)
	}
	wire.Finish(frame[wire.EthLen:], &h, tail)
	w.n[1].handle(w.now, 0, append(append(frame, payload...), tail...))
}

// hear takes what a frame of node 1 says of numbers.
func (w *rogue) hear(b []byte) {
	var f wire.Frame
	if f.Decode(b[wire.EthLen:]) != nil || f.Type != wire.TypeData {
		return
	}
	w.heard = max(w.heard, f.PN)
	var g wire.Segment
	for tail, err := f.Tail, error(nil); len(tail) > 0; {
		if tail, err = g.Next(tail); err != nil {
			w.t.Fatal(err)
		}
		for i := range w.conns {
			switch k := &w.conns[i]; {
			case g.Conn != uint32(k.c[0]):
			case g.Kind == wire.KindOpAck:
				k.base = g.Op
			case g.Kind == wire.KindCredit:
				k.limit = g.Limit
			}
		}
	}
}

func session(frame []byte) uint32 {
	var f wire.Frame
	if f.Decode(frame[wire.EthLen:]) != nil {
		return 0
	}
	return f.Session
}

// act performs a random call of the owner of node 1.
func (w *rogue) act() {
	k, e := &w.conns[w.some(len(w.conns))], w.n[1].e
	w.token++
	switch w.some(9) {
	case 0, 1:
		local := w.memory(100 + w.some(100))
		r := engine.Receive{Token: w.token, Local: local, Region: w.region}
		if w.token%2 == 0 {
			r.Local, r.Region, r.Pieces = nil, nil, new(engine.Pieces)
			r.Pieces.Cut(local, 1+int(w.token/2%engine.MaxPieces), w.region, 0)
		}
		if w.some(2) == 0 && e.PostShared(w.now, w.queue, &r) || e.PostReceive(w.now, k.c[1], &r) {
			w.bufs[w.token] = local
		}
	case 2:
		w.n[1].takeNotes(k.c[1])
	case 3:
		r := engine.Redirection{Token: w.token, Name: w.token, Key: k.keys[w.some(2)], Off: uint64(w.some(10)) * 50,
			Dst: w.memory(50 + w.some(50)), Region: w.region}
		if e.Redirect(k.c[1], &r) == engine.OK {
			w.inUse++
		}
	case 4:
		e.EndRedirect(k.c[1], w.token-uint64(w.some(30)))
	case 5:
		op := engine.Op{Kind: engine.OpSend, Token: w.token, Local: w.memory(100), Region: w.region,
			Flags: engine.OpFlags(w.some(8))}
		if w.some(2) == 0 {
			op.Patience = uint64(1 + w.some(1000000))
		}
		if w.some(2) == 0 {
			e.Submit(w.now, k.c[1], &op)
		} else if e.Compose(k.c[1], &op, w.token) == engine.OK {
			e.Wrote(k.c[1], w.token, 0, 100)
		}
	case 6:
		e.Commit(w.now, k.c[1], w.token-uint64(w.some(30)), 0, 0, 100)
	default:
		op := engine.Op{Kind: engine.OpRead, Token: w.token, Local: w.memory(100), Region: w.region, Key: 1,
			Flags: engine.OpFlags(w.some(8))}
		if w.some(2) == 0 {
			op.Kind = engine.OpWrite
		}
		if w.pages != nil && w.some(2) == 0 {
			op.Region = w.backed
		}
		e.Submit(w.now, k.c[1], &op)
	}
}

// look checks what node 1's owner is told, and forecasts.
func (w *rogue) look() {
	n := w.n[1]
	w.poll(1)
	for ; w.seen < len(n.events); w.seen++ {
		switch ev := &n.events[w.seen]; ev.Kind {
		case engine.EvReceived:
			b := w.bufs[ev.Token]
			most := len(b)
			if ev.Msg.Tells {
				most = rogueMemory // of a write
			}
			if b == nil || int(ev.Msg.Len) > most || !intact(b) {
				w.t.Fatalf("a buffer of %d bytes came back as %+v", len(b), ev)
			}
			delete(w.bufs, ev.Token)
		case engine.EvRedirected:
			w.inUse--
		case engine.EvClosed:
			n.notes = append(n.notes, ev.Notes...)
		}
	}
	for _, note := range n.notes {
		if mem := w.keys[note.Key]; note.Off > uint64(len(mem)) || uint64(note.Len) > uint64(len(mem))-note.Off {
			w.t.Fatalf("notified of %+v, in memory of %d bytes", note, len(mem))
		}
	}
	n.notes = n.notes[:0]
	if h := n.e.Holding(); h.Least < 0 {
		w.t.Fatalf("less than nothing is held: %+v", h)
	}
	for _, slot := range w.slots[:n.e.Forecast(0, w.slots[:])] {
		copy(slot, "what a driver received before it was known to be right")
	}
}

// TestRogue has a peer say what it likes for a while, to an owner who does this and that: nobody is told of what is not
// there, no byte beside the memory that was given changes, all comes back once, and nothing is charged in the end.
func TestRogue(t *testing.T) {
	for seed := range uint64(rogueSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newRogue(t, seed)
			for range 400 {
				w.say()
				w.look()
				if w.some(2) == 0 {
					w.act()
				}
				if w.pages != nil && w.some(3) == 0 {
					w.pages.come()
				}
				if w.some(4) == 0 {
					w.now = w.now.Add(time.Duration(w.some(300)) * time.Microsecond)
					if w.some(30) == 0 {
						w.now = w.now.Add(200 * time.Millisecond)
					}
					for _, f := range w.take(1) {
						w.hear(f.b)
					}
				}
			}
			for _, k := range w.conns {
				w.n[1].e.Abort(w.now, k.c[1], engine.StatusAborted)
			}
			w.look()
			if !w.n[1].e.DropReceiveQueue(w.queue) {
				t.Error("the queue cannot be dropped")
			}
			w.look()
			if n := w.n[1].e.Holding().Parked; n != 0 {
				t.Errorf("%d parts wait for memory", n)
			}
			if n := w.n[1].e.HeldMemory(); n != 0 || len(w.bufs) > 0 || w.inUse != 0 || w.region.InFlight != 0 ||
				w.backed != nil && w.backed.InFlight != 0 {
				t.Errorf("%d bytes are charged, %d buffers and %d redirections did not come back; a region is in use "+
					"%d times", n, len(w.bufs), w.inUse, w.region.InFlight)
			}
			for key, mem := range w.keys {
				if !intact(mem) {
					t.Errorf("bytes behind the memory of key %v changed", key)
				}
			}
		})
	}
}

const rogueSeeds = 200
