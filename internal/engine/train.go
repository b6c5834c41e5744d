package engine

import (
	"multiedge/flowctl"
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Receiving a train: frames with successive parts of one operation and successive packet numbers, handed over together.
//
//  1. The first is taken as any other (recv.go). If it is within a train, onData expects the next (expect).
//  2. A frame that is the expected one to the last bit of its headers, and intact, has its payload put in place and is
//     counted, and nothing else (follows). Before the first of these, everything is checked that the slow way checks
//     for each (begin).
//  3. Any other frame ends the train, and so does the end of the call: packet numbers are committed, and what came is
//     noted, all at once (endTrain).
//
// What comes of a train is what would come of its frames one by one; only the number of lookups in the table of grants
// is smaller.

// train is what was received of one in this call of Handle.
type train struct {
	on     bool        // the frame before leads one to expect next
	more   bool        // a frame waits behind the one that is being handled
	origin *frame.Addr // of the frame before, on an IP link
	next   wire.Train
	s      *peering.Session
	rx     *path.Rx
	head   wire.Frame // the latest frame that was decoded; Payload and Tail are not kept

	run    op.Run
	frames int                  // that are in run; none: it has not begun
	pn     uint64               // of the first
	bytes  int                  // of those frames
	placed int                  // of their payloads
	marks  [frame.CE + 1]uint32 // of those frames, by what their IP headers said
}

// expect notes what frame f of session s, which has just been taken, leads one to expect.
func (e *Endpoint) expect(s *peering.Session, r *path.Rx, f *wire.Frame) {
	t := &e.train
	if t.on = t.next.Begin(f); t.on {
		t.s, t.rx, t.head.Header, t.head.Bulk = s, r, f.Header, f.Bulk
	}
}

// from reports whether the frame before came from there as well. Another address may be a move (clause 21.5).
func (t *train) from(there *frame.Addr) bool {
	return there == t.origin || there != nil && t.origin != nil && *there == *t.origin
}

// follows takes frame b of link i if it is the next of the train. It reports false, and nothing has happened, if it is
// not; a sealed frame that was opened for nothing is taken as any other. left is how many frames of the call there are
// from b on.
func (e *Endpoint) follows(now mono.Time, i int, b []byte, left int) bool {
	t := &e.train
	if !e.cfg.Framing.Has(b) {
		return false
	}
	body := b[frame.HeaderLen:]
	if t.head.KeyEpoch != 0 {
		return t.next.Expects(body) && e.followsSealed(now, i, b, left)
	}
	payload := t.next.Plain(body)
	if payload == nil || !e.begin(i, len(payload), left, true) {
		return false
	}
	t.take(len(b), payload, e.scratch.ecn)
	return true
}

// sealedRest is what a sealed frame has besides a payload, after its Ethernet header and without a tail.
const sealedRest = wire.FixedLen + wire.BulkLen + wire.SplitLen + wire.TagLen

// followsSealed is follows for a sealed frame whose clear part is that of the next one.
func (e *Endpoint) followsSealed(now mono.Time, i int, b []byte, left int) bool {
	t, body := &e.train, b[frame.HeaderLen:]
	s := t.s
	n := len(body) - sealedRest
	if s.Trust.Opener == nil || n <= 0 || !e.begin(i, n, left, false) {
		return false
	}
	h := t.head.Header
	h.PN = t.next.PN()
	opened, ok := peering.Open(s.Trust.Opener, &e.scratch.nonce, e.nodes.Opening, body, &h)
	if ok {
		if payload := t.next.Opened(opened); payload != nil && len(payload) <= t.run.Room() {
			t.take(len(b), payload, e.scratch.ecn)
			return true
		}
	}
	e.endTrain(now, i)
	e.received(i, 1, len(b))
	src := frame.From(b)
	if t.origin != nil {
		src = *t.origin
	}
	e.afterOpening(now, s, i, src, &h, opened, ok)
	return true
}

// begin begins a run with the train's next frame, of n bytes of payload, unless there is one with room for it. left
// frames are there, that one included. It reports whether the frame can be in a run.
func (e *Endpoint) begin(i, n, left int, lasting bool) bool {
	t := &e.train
	if t.frames > 0 {
		return n <= t.run.Room()
	}
	s, f := t.s, &t.head
	largest, _, _ := t.rx.Tracker.Largest()
	if t.origin != nil && !s.Paths.Facing(i, f.Path, t.origin) { // Came has something to do for each
		return false
	}
	if largest+1 != t.next.PN() || largest+uint64(left) > flowctl.MaxPN || s.Paths.Contradicts(i, f.Path) {
		return false
	}
	room := min(uint64(n)*uint64(left), t.next.Follows())
	if !e.ops.BeginRun(&t.run, &s.Ops, f, room, lasting) {
		t.on = false // nor can those behind it
		return false
	}
	t.pn, t.bytes, t.placed = t.next.PN(), 0, 0
	return true
}

// take has the run take the payload of a frame of so many bytes.
func (t *train) take(bytes int, payload []byte, ecn frame.ECN) {
	t.marks[ecn%frame.ECN(len(t.marks))]++
	t.run.Take(payload)
	t.next.Advance(len(payload))
	t.frames++
	t.bytes += bytes
	t.placed += len(payload)
}

// endTrain commits what came of the train on link i. The next frame is taken as any other.
func (e *Endpoint) endTrain(now mono.Time, i int) {
	t := &e.train
	t.on = false
	n := t.frames
	if n == 0 {
		return
	}
	t.run.End(now, &e.forecasts[i])
	t.frames = 0
	e.received(i, n, t.bytes)
	t.s.Peer.Past.Received += uint64(n*(frame.HeaderLen+wire.FixedLen) + t.placed)
	e.Count.Traffic.DataFramesReceived += uint64(n)
	e.Count.Placing.FramesInTrains += uint64(n)
	t.rx.Tracker.CommitRun(t.pn, n, now)
	t.rx.Policy.OnFrames(now, n)
	if t.marks[frame.NotECT] == uint32(n) {
		t.marks[frame.NotECT] = 0
		return
	}
	t.rx.Marks.Note(frame.ECT0, t.marks[frame.ECT0])
	if t.marks[frame.CE] > 0 {
		t.rx.Marks.Note(frame.CE, t.marks[frame.CE])
		t.rx.Policy.Hasten(now)
	}
	clear(t.marks[:])
}
