package engine

import (
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// Sealing. The frames that one call of transmit makes are sealed at its end, one right behind the other: the cipher
// reads headers in words of 64 bytes, and would wait for the shorter ones they have just been written in, and for
// everything that was stored before these.

// unsealed is a frame of the batch that is complete but for its seal.
type unsealed struct {
	frame   []byte // from the fixed header on, without the payload
	payload []byte
	parts   bool // it has one: the frame is sealed in two parts (clause 10.5)
	path    uint8
	pn      uint64
}

// seal completes the headers of a frame of n bytes in one piece in the batch's buffer. sealAll encrypts it there, the
// payload from where it lies.
func (w *builder) seal(h *wire.Header, n int) {
	buf := w.buf
	if w.f.HasBulk {
		wire.PutBulk(buf[frame.HeaderLen+wire.FixedLen:], &w.f.Bulk)
	} else {
		buf = buf[wire.BulkLen:]
		clear(buf[frame.HeaderLen+wire.FixedLen+len(w.f.Tail) : n-wire.TagLen])
	}
	f := w.b.add(w.p.Link)
	w.address(f, buf)
	h.KeyEpoch = w.s.Trust.Sealer.Epoch()
	wire.FinishOpen(buf[frame.HeaderLen:], h, w.f.Tail)
	w.unsealed = append(w.unsealed, unsealed{})
	u := &w.unsealed[len(w.unsealed)-1]
	u.parts, u.payload, u.path, u.pn = w.f.HasBulk, w.f.Payload, h.Path, h.PN
	if u.frame = buf[frame.HeaderLen : n-wire.TagLen]; u.parts {
		u.frame = buf[frame.HeaderLen : wire.HeadLen+len(w.f.Tail)]
	}
	f.Head, f.Joined = buf[:n], w.joined
}

// sealAll seals what transmit has made for one session.
func (w *builder) sealAll() {
	for i := range w.unsealed {
		u, sealer := &w.unsealed[i], w.s.Trust.Sealer
		if u.parts {
			sealer.SealParts(u.frame, u.payload, u.path, u.pn)
		} else {
			sealer.Seal(u.frame, u.path, u.pn)
		}
		if sealer.Left == 0 {
			w.s.Worn()
		}
	}
	clear(w.unsealed) // payloads belong to others
	w.unsealed = w.unsealed[:0]
}
