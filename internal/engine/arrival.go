package engine

// Receiving one session on several cores. Its bookkeeping belongs to one thread, the endpoint's; what touches payloads does not. Where frames arrive, on any
// thread, a Reader verifies their payloads' checksums, or opens them; the endpoint's thread judges what it found (HandleArrival); and the copies to their places
// that it asks for can be made where the frames arrived again (Placer), whose core has them at hand.

import (
	"encoding/binary"
	"sync/atomic"

	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Arrival is a frame as a Reader found it. It refers to the frame and to the Reader's memory.
type Arrival struct {
	found  found
	whole  []byte // as it arrived
	frame  wire.Frame
	opener *secure.Opener
}

type found uint8

const (
	foundPlain  found = iota // a frame with data whose checksums are right
	foundOpened              // one that was sealed, opened by opener
	foundForged              // one that does not open
	foundOther               // anything else: the endpoint's own business
)

// Reader looks at frames where they arrive. It belongs to one goroutine; the endpoint's may run meanwhile.
type Reader struct {
	etherType uint16
	openers   *openers // nil: this node talks plaintext
	nonce     secure.Nonce
	room      []byte // for what is opened
}

// openers are those of all sessions by number, for Readers. The map is never changed, but replaced.
type openers struct {
	of   atomic.Pointer[map[uint32]*secure.Opener]
	read bool // by some Reader
}

// NewReader returns a Reader of the endpoint's frames. All are made before the first session.
func (e *Endpoint) NewReader() *Reader {
	r := &Reader{etherType: e.cfg.EtherType}
	if e.cfg.Secure != nil {
		e.openers.read = true
		r.openers = &e.openers
	}
	return r
}

// Expect makes room for n frames of up to so many bytes at once, headers included, which Read does else.
func (r *Reader) Expect(n, bytes int) {
	if need := n * openRoom(bytes); r.openers != nil && len(r.room) < need {
		r.room = make([]byte, need)
	}
}

// Read looks at complete Ethernet frames and fills to, which is as long. What it notes there refers to the frames, and lasts until the next Read or Expect.
func (r *Reader) Read(frames [][]byte, to []Arrival) {
	longest := 0
	for _, f := range frames {
		longest = max(longest, len(f))
	}
	r.Expect(len(frames), longest)
	room := r.room
	for i, f := range frames {
		n := min(openRoom(longest), len(room))
		r.look(f, room[:n:n], &to[i])
		room = room[n:]
	}
}

// openRoom is what opening a frame of so many bytes takes (secure.Opener.OpenParts).
func openRoom(frame int) int { return 2 * frame }

func (r *Reader) look(frame, room []byte, a *Arrival) {
	a.found, a.whole = foundOther, frame
	if len(frame) < wire.EthLen+wire.ClearLen || binary.BigEndian.Uint16(frame[12:]) != r.etherType {
		return
	}
	b, f := frame[wire.EthLen:], &a.frame
	if !wire.Sealed(b) {
		if f.Decode(b) == nil && f.Type == wire.TypeData && f.PayloadIntact() {
			f.Flags &^= wire.FlagPayloadSum // once is enough
			a.found = foundPlain
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
	if a.opener = (*known)[h.Session]; a.opener == nil {
		return
	}
	switch opened, ok := open(a.opener, &r.nonce, room, b, &h); {
	case !ok:
		a.found = foundForged
	case f.DecodeOpened(opened) == nil:
		a.found = foundOpened
	}
}

// open opens a sealed frame with data into room, of which it takes openRoom (clause 10.5).
func open(o *secure.Opener, n *secure.Nonce, room, b []byte, h *wire.Header) (opened []byte, ok bool) {
	if h.Flags&wire.FlagBulk != 0 {
		return o.OpenParts(n, room, b, wire.FixedLen+wire.BulkLen, h.KeyEpoch, h.Path, h.PN)
	}
	return o.Open(n, room, b, h.KeyEpoch, h.Path, h.PN)
}

// HandleArrival is HandleFrame for a frame that a Reader has looked at, which arrived on local link i. It is borrowed until Placed.
func (e *Endpoint) HandleArrival(now mono.Time, i int, a *Arrival) {
	e.Count.FramesFromReaders++
	f := &a.frame
	switch a.found {
	case foundPlain:
		e.received(i, len(a.whole))
		e.onPlainData(now, i, [6]byte(a.whole[6:12]), f)
		return
	case foundForged:
		e.received(i, len(a.whole))
		e.Count.RejectedAuth++
		return
	case foundOpened:
		if s := e.session(f.Session); s != nil && s.opener == a.opener { // else it is over since
			e.received(i, len(a.whole))
			e.lasting = true
			if s.isNew(i, &f.Header) {
				s.onOpened(now, i, f)
			}
			return
		}
	}
	e.HandleFrame(now, i, a.whole)
}

// showOpeners shows Readers the openers there are now.
func (e *Endpoint) showOpeners() {
	if !e.openers.read {
		return
	}
	m := make(map[uint32]*secure.Opener, len(e.byNumber))
	for number, s := range e.byNumber {
		if s.opener != nil {
			m[number] = s.opener
		}
	}
	e.openers.of.Store(&m)
}
