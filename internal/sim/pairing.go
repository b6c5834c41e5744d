package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// channel is two nodes that want a connection: when one is over, the next is dialled.
type channel struct {
	from, to *Node
	tries    int
}

// answer is how the asked end treats a request.
type answer int

const (
	acceptNow answer = iota
	acceptLater
	refuse
	abandon // aborts it instead of answering
	nobody  // the service does not exist
	answers
)

// pairing is one attempt at a connection, both ends of it and the memory that their operations touch.
type pairing struct {
	w        *swarm
	number   int
	channel  *channel
	end      [2]*end // the asking one first
	ordered  bool
	overlap  bool // of ordered: answers overlap
	answer   answer
	deadline mono.Time // of the dial
	birth    birth
	ended    bool // one end closed or aborted it, or gave up waiting
	rested   bool // it was idle for seconds before it was closed
}

type endState int

const (
	endNone endState = iota
	endDialing
	endIncoming
	endOpen
	endOver
	endLate // of a request that came again when everything was over
)

// end is one end of a pairing.
type end struct {
	pairing *pairing
	node    *Node
	other   *end
	boot    uint64
	conn    engine.ConnID
	state   endState
	closing bool // this end asked to close
	aborted bool
	killed  bool // its node crashed
	lazy    time.Duration
	flow    flow    // what it submits
	local   *area   // which uses this memory
	exports []*area // what the other end reaches
	inbox
}

func (e *end) String() string {
	return fmt.Sprintf("pairing %d node%d connection %x", e.pairing.number, e.node.Index, e.conn)
}

// dial begins a pairing on a channel.
func (w *swarm) dial(ch *channel, kind planKind, timeout time.Duration) *pairing {
	if kind == anyOperations && w.world.opt.HeldBytes > 0 {
		kind = plainWrites
	}
	p := &pairing{w: w, number: len(w.pairs), channel: ch, ordered: w.rng.IntN(4) == 0,
		deadline: w.world.Now.Add(timeout)}
	p.overlap = p.ordered && p.number%2 == 0 // not drawn: worlds of known seeds stay what they are
	if kind != goodOperations && w.rng.IntN(6) == 0 {
		p.answer = answer(w.rng.IntN(int(answers)))
	}
	a, b := &end{pairing: p, node: ch.from}, &end{pairing: p, node: ch.to}
	a.other, b.other = b, a
	p.end = [2]*end{a, b}
	p.birth = birth{w.world.Now, p.worn()}
	most := 30
	if kind == goodOperations {
		most = 6
	}
	p.plan(w.rng, a, b, most, kind)
	p.plan(w.rng, b, a, most, kind)
	for _, e := range p.end {
		w.style(e, kind)
		w.areas[e.node.Index] = append(w.areas[e.node.Index], append(e.exports, e.local, e.mail)...)
	}
	w.pairs = append(w.pairs, p)
	service := "test"
	if p.answer == nobody {
		service = "none"
	}
	id, err := ch.from.E.Dial(w.world.Now, ch.to.Name(), service, engine.DialOptions{Ordered: p.ordered,
		Overlap: p.overlap, Data: binary.BigEndian.AppendUint32(nil, uint32(p.number)), Timeout: timeout})
	if err != nil {
		w.world.fault("dial: %w", err)
	}
	w.begin(a, id, endDialing)
	return p
}

// style draws how an end behaves: all operations at once or one after the other; notifications taken at once or late.
func (w *swarm) style(e *end, kind planKind) {
	if kind == goodOperations {
		return
	}
	if n := len(e.flow.ops); n > 0 && w.rng.IntN(3) == 0 {
		e.flow.gap = time.Duration(w.rng.Int64N(int64(w.mix.duration)/int64(n) + 1))
	}
	if w.rng.IntN(4) == 0 {
		e.lazy = time.Duration(1 + w.rng.IntN(50_000_000))
	}
}

// begin gives an end its connection, and the other end the keys.
func (w *swarm) begin(e *end, id engine.ConnID, st endState) {
	e.conn, e.state, e.boot = id, st, e.node.boot
	w.ends[e.node.Index][id] = e
	for _, a := range e.exports {
		key, err := e.node.Grants.Grant(a.region, uint64(id),
			regmem.RemoteRead|regmem.RemoteWrite|regmem.RemoteAtomic, 0, uint64(a.size))
		if err != nil {
			w.world.fault("grant: %w", err)
		}
		a.key = key
	}
}

func (w *swarm) dialTime() time.Duration {
	return []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second, time.Minute}[w.rng.IntN(4)]
}

// randomEnd returns an end that satisfies ok, nil if there is none.
func (w *swarm) randomEnd(rng *rand.Rand, ok func(*end) bool) *end {
	var all []*end
	for _, p := range w.pairs {
		for _, e := range p.end {
			if ok(e) && !e.node.Down {
				all = append(all, e)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}
