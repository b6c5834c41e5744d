package sim

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// inbox is the buffers that an end posts for the messages of the other, one for each. They are filled in their order,
// by messages in theirs. Where all messages wait for a buffer each meets its own; where some do not (impatience.go),
// those behind them may meet it instead.
type inbox struct {
	awaits  []*operation // the other end's sends
	mail    *area        // which the buffers are in
	buffers []*buffer    // as many as awaits
	hurried bool         // some of awaits are impatient
	posted  int          // of buffers
	got     int          // and came back
	met     int          // of awaits: those before it met a buffer, or were passed over
	shares  *pool        // the buffers are of it, not of mail; nil: no
	joined  mono.Time    // when the connection joined its queue; 0: not yet
	unused  int          // buffers of it that the connection is promised
	gained  int          // of them, in the latest event
	latest  uint64       // of the buffers from there: the token; they come in the order they were posted in
}

// buffer is memory for one of some messages.
type buffer struct {
	*slot           // as long as the longest of them
	size  int       // so much of it is posted
	at    mono.Time // when
}

// message is what is known of an operation that is a send.
type message struct {
	data   []byte
	number int       // in the peer's awaits
	at     mono.Time // when it was submitted
	sure   bool      // a buffer had been posted for it then, whatever comes of those before it
	passed bool      // one behind it has met a buffer, which it has not: it never may
}

// await adds a message to those that come.
func (in *inbox) await(o *operation, data []byte) {
	o.msg.data, o.msg.number = data, len(in.awaits)
	in.awaits = append(in.awaits, o)
}

// layBuffers makes the buffers, so that every message fits into those that it may meet, but for the bad ones: those are
// too long for each of them.
func (in *inbox) layBuffers(mail *area) {
	if in.shares != nil {
		for _, o := range in.awaits {
			o.bad, o.far = in.shares.tooLong(o), mail.slot(0, nil, false)
		}
		return
	}
	may := make([][]*operation, len(in.awaits)) // meet a buffer
	patient := 0
	for i, o := range in.awaits {
		o.bad = o.bad && o.size > 0 && !o.impatient()
		for k := patient; k <= i; k++ { // fewer than patient buffers are not filled before it, more than i cannot be
			may[k] = append(may[k], o)
		}
		if o.impatient() {
			in.hurried = true
		} else {
			patient++
		}
	}
	sizes := make([]int, len(may))
	for again := true; again; {
		again = false
		for k, all := range may {
			sizes[k] = postedSize(all)
		}
		for k, all := range may {
			for _, o := range all {
				if o.bad && o.size <= sizes[k] {
					o.bad, again = false, true
				}
			}
		}
	}
	for k, all := range may {
		longest := 0
		for _, o := range all {
			longest = max(longest, o.size)
		}
		b := &buffer{slot: mail.slot(longest, nil, false), size: sizes[k]}
		b.among = all
		in.buffers = append(in.buffers, b)
		in.awaits[k].far = b.slot
	}
}

// postedSize is how long a buffer is: all fit that are not bad, or none if all are.
func postedSize(may []*operation) int {
	fits, least := -1, may[0].size
	for _, o := range may {
		if !o.bad {
			fits = max(fits, o.size)
		}
		least = min(least, o.size)
	}
	if fits < 0 {
		return least - 1
	}
	return fits
}

// postBuffers posts buffers, a few at a time, so that messages have to wait for some: until there is one for every
// message, or no message is left that waits as long as it takes.
func (w *swarm) postBuffers(e *end) {
	if e.state != endOpen && e.state != endIncoming || e.node.Down || e.boot != e.node.boot {
		return
	}
	n := 1 + w.mail.IntN(8)
	if e.hurried { // so that some messages meet none
		if n %= 4; e.posted > 0 && !e.awaitsPatient() {
			return
		}
	}
	for ; e.posted < len(e.buffers) && n > 0; n-- {
		b := e.buffers[e.posted]
		r := receive(uint64(e.posted), b.bytes()[:b.size], e.mail.region)
		if !e.node.E.PostReceive(w.world.Now, e.conn, &r) {
			return // it is being closed
		}
		b.at = w.world.Now
		e.posted++
	}
	if e.posted < len(e.buffers) {
		w.world.After(time.Duration(w.mail.IntN(20_000_000)), func() { w.postBuffers(e) })
	}
}

// postEarly posts some buffers before a connection is accepted, now and then (clause 14.2).
func (w *swarm) postEarly(e *end) {
	if !w.mix.early || e.shares != nil || e.pairing.answer > acceptLater || len(e.buffers) == 0 || w.mail.IntN(2) == 0 {
		return
	}
	if w.postBuffers(e); e.posted == 0 && !e.hurried {
		w.world.fault("%v: takes no buffers before it is accepted", e)
	}
	w.report.Early += uint64(e.posted)
}

// receive is memory to be posted: some in pieces.
func receive(token uint64, b []byte, region *regmem.Region) engine.Receive {
	if token%3 != 2 {
		return engine.Receive{Token: token, Local: b, Region: region}
	}
	r := engine.Receive{Token: token, Pieces: new(engine.Pieces)}
	r.Pieces.Cut(b, 1+int(token%engine.MaxPieces), region, 0)
	return r
}

// awaitsPatient reports whether a message is to come that waits for a buffer as long as it takes.
func (in *inbox) awaitsPatient() bool {
	return slices.ContainsFunc(in.awaits[in.met:], func(o *operation) bool { return !o.impatient() })
}

// received checks a buffer that came back: in the order of sends, whole and once (clauses 14.2 and 14.3).
func (w *swarm) received(e *end, ev *engine.Event) {
	w.mailed[e.node.Index].count(ev)
	if e.shares != nil {
		w.receivedShared(e, ev)
		return
	}
	if ev.Token != uint64(e.got) || e.got >= e.posted {
		w.world.fault("%v: buffer %d came back, want %d of %d", e, ev.Token, e.got, e.posted)
		return
	}
	b := e.buffers[e.got]
	e.got++
	if ev.Status != engine.OK && ev.Status != engine.StatusTooLong {
		return // the connection ends
	}
	if err := e.meets(w, b, ev); err != nil {
		w.world.fault("%v: buffer %d of %d bytes came back as %+v with status %d: %w", e, ev.Token, b.size, ev.Msg,
			ev.Status,
			err)
	}
	b.fill(reused)
}

// meets finds out which message met a buffer: the next, or one behind impatient ones. Those were refused then.
func (in *inbox) meets(w *swarm, b *buffer, ev *engine.Event) error {
	for i, o := range in.awaits[in.met:] {
		if !o.is(b, ev) {
			if !o.impatient() || o.complete && o.status == engine.OK {
				return fmt.Errorf("neither message %d of %d bytes (bad %v, status %d) nor one that it may follow",
					o.msg.number, o.size, o.bad, o.status)
			}
			continue
		}
		for _, before := range in.awaits[in.met : in.met+i] {
			before.msg.passed = true
		}
		in.met += i + 1
		if ev.Status == engine.OK {
			o.notified++
		}
		return o.judgeMeeting(w, b)
	}
	return fmt.Errorf("no message is left for it")
}

// is reports whether a buffer came back with a message. Those that one buffer may meet differ from each other
// (operation.hurries).
func (o *operation) is(b *buffer, ev *engine.Event) bool {
	if !o.submitted || o.bad != (ev.Status == engine.StatusTooLong) {
		return false
	}
	if o.bad {
		return notAll(b.bytes()[b.size:], untouched) < 0
	}
	m, mem := ev.Msg, b.bytes()
	return int(m.Len) == o.size && bytes.Equal(mem[:o.size], o.msg.data) && notAll(mem[o.size:], untouched) < 0 &&
		m.HasImm == (o.op.Flags&engine.Notify != 0) && (!m.HasImm || m.Imm == o.op.Imm)
}

// has reports whether a message is in a buffer, or was. Memory that is its owner's again shows nothing.
func (in *inbox) has(o *operation) bool {
	if o.msg.passed {
		return false
	}
	if in.mail.void || o.notified > 0 {
		return true
	}
	if in.shares != nil {
		return in.shares.has(o)
	}
	return slices.ContainsFunc(in.buffers[in.got:in.posted], func(b *buffer) bool { return b.has(o) })
}

// has reports whether a message is in the buffer.
func (b *buffer) has(o *operation) bool {
	return o.size <= b.size && bytes.Equal(b.bytes()[:o.size], o.msg.data)
}

// checkAny compares a buffer with what may be there: part of one of these messages.
func (s *slot) checkAny(among []*operation) error {
	b := s.bytes()
	if bytes.Equal(b, blank[:len(b)]) {
		return nil
	}
	at, worst := 0, 0
	for _, o := range among {
		for at = 0; at < len(b) && (b[at] == untouched || at < o.size && b[at] == o.msg.data[at]); at++ {
		}
		if at == len(b) {
			return nil
		}
		worst = max(worst, at)
	}
	return fmt.Errorf("node%d, %s: byte %d of the buffer at %d became %#x, which is of none of %d messages",
		s.area.node.Index, s.area.name, worst, s.off, b[worst], len(among))
}
