package peering

import (
	"sync/atomic"

	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Receiving one session on several cores. The bookkeeping of a session belongs to one thread, the endpoint's; work on
// payloads does not. Where frames arrive, on any thread, a Reader verifies the checksums of payloads, or opens sealed
// frames. The endpoint's thread judges what the Reader found (Handle). The copies to their places can then be made on
// the thread where the frames arrived (Placer): its core's cache holds them.

// Arrival is a frame that arrived: its bytes, in one piece or as they were received into a slot of Forecast, and what a
// Reader found, if one has looked at it. It refers to the frame and to the Reader's memory.
type Arrival struct {
	frame.Rx
	Found   found
	Decoded *wire.Frame // the Reader's
	Opener  *secure.Opener
}

// Whole returns the Arrival of a complete Ethernet frame.
func Whole(bytes []byte) Arrival { return Arrival{Rx: frame.Rx{Head: bytes}} }

type found uint8

const (
	Unread      found = iota // no Reader has looked at it
	FoundPlain               // a frame with data whose checksums are right
	FoundOpened              // one that was sealed, opened by opener
	FoundForged              // one that does not open
	foundOther               // anything else: the endpoint's own business
)

// Reader looks at frames where they arrive. It belongs to one goroutine; the endpoint's may run meanwhile.
type Reader struct {
	framing frame.Framing
	openers *openers // nil: this node talks plaintext
	nonce   secure.Nonce
	room    []byte // for what is opened
	decoded []wire.Frame
	turn    atomic.Uint64 // odd while it reads
}

// openers are those of all sessions by number, for Readers. The map is never changed, but replaced.
type openers struct {
	of      atomic.Pointer[map[uint32]*secure.Opener]
	readers []*Reader
}

// NewReader returns a Reader of the endpoint's frames. All are made before the first session.
func (e *Endpoint) NewReader() *Reader {
	r := &Reader{framing: e.net.Framing()}
	if e.cfg.Secure != nil {
		e.shakes.openers.readers = append(e.shakes.openers.readers, r)
		r.openers = &e.shakes.openers
	}
	return r
}

// Expect makes room for n frames of up to so many bytes at once, headers included, which Read does else.
func (r *Reader) Expect(n, bytes int) {
	if len(r.decoded) < n {
		r.decoded = make([]wire.Frame, n)
	}
	if need := n * openRoom(bytes); r.openers != nil && len(r.room) < need {
		r.room = make([]byte, need)
	}
}

// Read looks at complete Ethernet frames and fills to, which is as long. What it notes there refers to the frames, and
// lasts until the next Read or Expect.
func (r *Reader) Read(frames [][]byte, to []Arrival) {
	r.turn.Add(1)
	defer r.turn.Add(1)
	longest := 0
	for _, f := range frames {
		longest = max(longest, len(f))
	}
	r.Expect(len(frames), longest)
	room := r.room
	for i, f := range frames {
		n := min(openRoom(longest), len(room))
		to[i] = Arrival{Rx: frame.Rx{Head: f}, Found: foundOther, Decoded: &r.decoded[i]}
		r.look(f, room[:n:n], &to[i])
		room = room[n:]
	}
}

// openRoom is what opening a frame of so many bytes takes (secure.Opener.OpenParts).
func openRoom(frame int) int { return 2 * frame }

func (r *Reader) look(b, room []byte, a *Arrival) {
	if len(b) < frame.HeaderLen+wire.ClearLen || !r.framing.Has(b) {
		return
	}
	b = b[frame.HeaderLen:]
	f := a.Decoded
	if !wire.Sealed(b) {
		if f.Decode(b) == nil && f.Type == wire.TypeData && f.PayloadIntact() {
			f.Flags &^= wire.FlagPayloadSum // once is enough
			a.Found = FoundPlain
		}
		return
	}
	if r.openers == nil {
		return
	}
	var h wire.Header
	known := r.openers.of.Load()
	if known == nil || h.DecodeClear(b) != nil || h.Type != wire.TypeData {
		return
	}
	if a.Opener = (*known)[h.Session]; a.Opener == nil {
		return
	}
	switch opened, ok := Open(a.Opener, &r.nonce, room, b, &h); {
	case !ok:
		a.Found = FoundForged
	case f.DecodeOpened(opened) == nil:
		a.Found = FoundOpened
	}
}

// Open opens a sealed frame with data into room, of which it takes openRoom (clause 10.5).
func Open(o *secure.Opener, n *secure.Nonce, room, b []byte, h *wire.Header) (opened []byte, ok bool) {
	if h.Flags&wire.FlagBulk != 0 {
		return o.OpenParts(n, room, b, wire.FixedLen+wire.BulkLen, h.KeyEpoch, h.Path, h.PN)
	}
	return o.Open(n, room, b, h.KeyEpoch, h.Path, h.PN)
}

// showOpeners shows Readers the openers there are now.
func (e *Endpoint) showOpeners() {
	if len(e.shakes.openers.readers) == 0 {
		return
	}
	m := make(map[uint32]*secure.Opener, len(e.Sessions.ByNumber))
	for number, s := range e.Sessions.ByNumber {
		if s.Trust.Opener != nil {
			m[number] = s.Trust.Opener
		}
	}
	e.shakes.openers.of.Store(&m)
}
