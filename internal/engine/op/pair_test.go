package op

import (
	"math/rand/v2"
	"testing"

	"multiedge/internal/engine/build"
	"multiedge/internal/engine/count"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// pair is two endpoints of operations with a session between them, and nothing else of the transport: what one fills
// into a frame, the other is given.
type pair struct {
	t   *testing.T
	end [2]*end
	now mono.Time
}

type end struct {
	e       Endpoint
	s       Session
	w       build.Frame
	records build.Records
	grants  *regmem.Table
	buf     [2048]byte
	events  []Event
	fc      Forecast
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, now: 1e9}
	for i := range p.end {
		n := &end{grants: regmem.NewTable(rand.NewChaCha8([32]byte{byte(i)}))}
		n.records.Init()
		n.w = build.Frame{Records: &n.records, Scratch: func(n int) []byte { return make([]byte, n) }}
		n.e.Init(Config{Rand: rand.New(rand.NewPCG(1, uint64(i))), OpWindow: 16, HeldBytes: 1 << 20, MaxConns: 8,
			MaxDials: 8,
			DialTime: 1e9, Grants: n.grants, Count: &count.Counters{}, Latency: &count.Latency{},
			Crowded: func(*Session) bool { return false }})
		n.s = NewSession(&Peer{ID: NodeID{byte(2 - i)}})
		n.s.Open = true
		p.end[i] = n
	}
	return p
}

// carry has end i send one frame, which arrives unless it is lost, and takes its events and the other end's.
func (p *pair) carry(i int, lost bool) {
	from, to, w := p.end[i], p.end[1-i], &p.end[i].w
	w.Now = p.now
	w.Begin(from.buf[:0], len(from.buf)-wire.HeadLen, 0)
	from.s.AppendAcks(w)
	from.s.Fill(w)
	if w.HasBulk && !lost {
		f := wire.Frame{Header: wire.Header{Flags: wire.FlagBulk}, Bulk: w.Bulk, Payload: w.Payload}
		to.e.OnBulk(p.now, &to.s, &f, &to.fc, false)
	}
	var g wire.Segment
	for tail := w.Tail; len(tail) > 0 && !lost; {
		var err error
		if tail, err = g.Next(tail); err != nil {
			p.t.Fatal(err)
		}
		to.e.OnSegment(p.now, &to.s, &g, false)
	}
	for k := w.Recs; k != 0; k = from.records.Pool[k].Next {
		if r := from.records.Pool[k]; lost {
			from.e.OnLost(&r)
		} else {
			from.e.OnAcked(p.now, r)
		}
	}
	from.records.Release(w.Recs)
	for _, n := range p.end {
		var ev Event
		for n.e.PollEvent(&ev) {
			n.events = append(n.events, ev)
		}
	}
	p.now += 1000
}

// connect opens a connection, and returns its number at each end.
func (p *pair) connect() (c [2]ConnID) {
	a, b := p.end[0], p.end[1]
	b.e.Listen("s")
	dial, err := a.e.NewDial(p.now, "peer", "s", DialOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	dial.Join(&a.s)
	dial.RequestOpen()
	p.carry(0, false)
	c = [2]ConnID{dial.ID, b.events[0].Conn}
	if err := b.e.Accept(p.now, c[1], nil); err != nil {
		p.t.Fatal(err)
	}
	p.carry(1, false)
	if a.e.conn(c[0]).state != connOpen || b.e.conn(c[1]).state != connOpen {
		p.t.Fatalf("not open: %+v, %+v", a.events, b.events)
	}
	a.events, b.events = nil, nil
	return c
}

// export grants the peer n bytes of end i.
func (p *pair) export(i int, c ConnID, n int, perm regmem.Perm) ([]byte, regmem.Key) {
	mem := make([]byte, n)
	key, err := p.end[i].grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(mem)}, uint64(c), perm, 0, uint64(n))
	if err != nil {
		p.t.Fatal(err)
	}
	return mem, key
}
