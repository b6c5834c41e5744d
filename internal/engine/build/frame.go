// Package build has the content of a frame while it is put together, and records of what frames in flight carry.
package build

import (
	"encoding/binary"
	"slices"

	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/remap"
)

// Of the parts of operations in a frame one is gathered from where it lies; the others are copied into the tail.
// SmallMost is the longest part that is copied although it could be gathered, in bytes, packMost the longest that is
// copied because another is gathered already: a copy costs less than a frame of its own. Of short frames they are at
// most a quarter, and half.
const (
	SmallMost = 1024
	packMost  = 4096
)

// Frame is what one frame carries, while it is put together. What fills it appends small segments to the tail, and
// makes one long payload the bulk, which stays where it lies; it records each. The owner of the frame begins it, with
// its limits, and finishes it.
type Frame struct {
	Now   mono.Time
	Tail  []byte // grows in the frame's buffer
	Limit int    // longest frame, bytes after the Ethernet header and before the tag
	more  int    // how much longer than preferred the frame can be
	Tag   int    // bytes of the tag that sealing adds
	Split int    // bytes that sealing adds for a payload
	Shuf  int    // header bytes that payloads are shuffled past, 0 for none
	Room  int    // bytes left for tail, and bulk header and payload
	Seg   wire.Segment
	Words [2 * wire.AtomicWord]byte // of seg, if it is an atomic or its result
	Flags uint8
	Retx  bool // something of it was sent before

	HasBulk   bool
	Bulk      wire.Bulk
	Payload   []byte
	Eliciting bool

	Last Latest

	Records *Records
	Recs    int32 // records so far, newest first

	scratch []byte             // of smallRoom; made at the first use
	Scratch func(n int) []byte // room for n bytes of payload, which last as long as the frame
}

// Begin empties a frame whose tail is to grow in buf, at most limit bytes long after the Ethernet header and before the
// tag, or a little more where that saves a frame.
func (w *Frame) Begin(buf []byte, limit, more int) {
	w.Tail, w.Limit, w.more, w.Room = buf, limit, more, limit-wire.FixedLen
	w.Recs, w.Flags, w.Retx, w.HasBulk, w.Eliciting, w.Last.Kind = 0, 0, false, false, false, wire.KindPad
	w.Payload = nil
}

func (w *Frame) Used() bool { return w.HasBulk || len(w.Tail) > 0 }

// SmallLimit is the longest part that is copied into this frame.
func (w *Frame) SmallLimit() uint64 {
	if w.HasBulk {
		return uint64(min(packMost, (w.Limit+w.Tag)/2))
	}
	return uint64(min(SmallMost, w.Limit/4))
}

// Fits reports whether a segment of an operation fits into the tail. A little over the preferred length is cheaper than
// another frame; but that may be why what is sent again was lost.
func (w *Frame) Fits(n int, retx bool) bool {
	if n <= w.Room || retx || w.Retx || !w.HasBulk {
		return n <= w.Room
	}
	return n <= w.Room+min(stretchMost, w.more)
}

// Small appends a segment to the tail; it must fit.
func (w *Frame) Small(g *wire.Segment) {
	n := len(w.Tail)
	w.Tail = g.AppendTo(w.Tail)
	w.Room -= len(w.Tail) - n
	w.Last.Kind = wire.KindPad
	if g.Kind != wire.KindAck && g.Kind != wire.KindPad {
		w.Eliciting = true
	}
}

// Extend makes the tail n bytes longer, which are to be written.
func (w *Frame) Extend(n int) { w.Tail = slices.Grow(w.Tail, n)[:len(w.Tail)+n] }

// Pad makes the tail n bytes longer, if there is room and they are no fewer than a segment has.
func (w *Frame) Pad(n int) {
	if at := len(w.Tail); n >= wire.PadLen && at+n <= cap(w.Tail) {
		w.Extend(n)
		clear(w.Tail[at:])
		w.Tail[at] = byte(wire.KindPad)
		binary.BigEndian.PutUint16(w.Tail[at+2:], uint16(n-wire.PadLen))
	}
}

// stretchMost is how much longer than preferred a frame may be, in bytes, so that another operation fits into it.
const stretchMost = 1024

// BulkRoom returns how many of n bytes for destination offset place the frame's bulk segment can take; 0 if it has one
// already or so little is left that the next frame should have them.
func (w *Frame) BulkRoom(n, place uint64, retx bool) uint64 {
	room := w.Room - wire.BulkLen - w.Split
	if w.HasBulk || room <= 0 || uint64(room) < n && 2*room < w.Limit {
		return 0
	}
	if w.Shuf > 0 {
		return uint64(remap.NextLen(place, n, room, PageSize))
	}
	// A little over the preferred length is cheaper than another frame for the rest; but that may be why it was lost.
	if most := room + w.more; uint64(room) >= n || uint64(most) >= n && !retx && !w.Retx {
		return n
	}
	return uint64(room - room%w.Unit())
}

// Unit is what payloads that are cut are multiples of, in bytes. In long frames it pays to give up to 63 bytes for
// payloads on cache lines at their destination.
func (w *Frame) Unit() int {
	if w.Limit < alignFrom {
		return 8
	}
	return 64
}

// Attach makes payload the frame's bulk. For a receiver that wants page alignment the first bytes go behind the others
// (clause 2.6).
func (w *Frame) Attach(payload []byte) {
	w.HasBulk, w.Eliciting, w.Last.Kind = true, true, wire.KindPad
	w.Bulk.Len = uint16(len(payload))
	w.Room -= wire.BulkLen + len(payload) + w.Split
	w.Payload = payload
}

// Leads reports whether the frame holds a payload and nothing else, which was cut to the frame's length and was not
// sent before: then another frame with the same limits can hold the part behind it.
func (w *Frame) Leads() bool {
	return w.HasBulk && len(w.Tail) == 0 && w.Flags == 0 && !w.Retx && w.Shuf == 0 && len(w.Payload) == w.cut() &&
		w.Bulk.Flags&wire.SegLast == 0
}

// cut is the length of the payloads that fill frames of these limits.
func (w *Frame) cut() int {
	room := w.Limit - wire.FixedLen - wire.BulkLen - w.Split
	return room - room%w.Unit()
}

// Behind returns the length of the next frame's payload, if this one leads and n bytes of the part are left behind it
// that do not all fit (BulkRoom).
func (w *Frame) Behind(n uint64) (take uint64, ok bool) {
	room := w.Limit - wire.FixedLen - wire.BulkLen - w.Split
	return uint64(len(w.Payload)), n > uint64(room+w.more)
}

// Follow makes the frame, which led, the one with the part behind it: payload, as long as the one before. follows is
// how many bytes of the operation are behind that.
func (w *Frame) Follow(payload []byte, follows uint64) {
	r := w.Records.Pool[w.Recs]
	w.Bulk.Place += r.N
	w.Bulk.Flags &^= wire.SegFirst
	w.Announce(follows)
	w.Payload, w.Recs = payload, 0
	w.Note(r.Kind, r.Conn, r.Op, r.Off+r.N, r.N, false)
}

// Announce says in the bulk header how much of the operation follows, unless it is the last part (clause 2.3).
func (w *Frame) Announce(follows uint64) {
	if follows > 0 {
		w.Bulk.Imm = uint32(min(follows, 1<<32-1))
	}
}

// SmallRoom returns room for n bytes that are gathered, and copied into the tail at once.
func (w *Frame) SmallRoom(n uint64) []byte {
	if w.scratch == nil {
		w.scratch = make([]byte, packMost)
	}
	return w.scratch[:n]
}

const alignFrom = 4096

const PageSize = 4096

// Latest is the small write or send that a frame's tail ends with. The short form can follow it: a write into the same
// memory, or a whole send that is the next message.
type Latest struct {
	Kind   wire.Kind // KindPad: there is none
	Fenced uint8     // SegFenced
	Conn   uint32
	Op     seqnum.Value
	Fence  seqnum.Value
	Key    uint64 // of what can follow
}
