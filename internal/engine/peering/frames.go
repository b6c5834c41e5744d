package peering

import (
	"math/bits"

	"multiedge/internal/engine/build"
	"multiedge/internal/wire"
)

// What sessions put into frames.

// AppendKeys appends our half of an exchange (clause 10.6).
func (s *Session) AppendKeys(w *build.Frame) {
	k := &s.Trust.Keys
	if w.Room < 64 {
		return
	}
	k.Owed = false
	w.Seg = wire.Segment{Kind: wire.KindKeys, Op: k.number + 1, Data: k.ours[:]}
	if k.next != nil {
		w.Seg.Flags = wire.KeysReady
	}
	w.Small(&w.Seg)
	w.Note(build.RecKeys, 0, 0, uint64(k.number+1), 0, false)
}

// Worn is called when the key that seals has sealed as many frames as it may.
func (s *Session) Worn() { s.Trust.Keys.at = 0 }

// AppendLinks appends the news of our links (clause 10.4).
func (s *Session) AppendLinks(w *build.Frame) {
	for ; s.PeerLinks.News != 0 && w.Room >= 64; s.PeerLinks.News &= s.PeerLinks.News - 1 {
		i := bits.TrailingZeros64(s.PeerLinks.News)
		in := s.e.linkInfo(i)
		w.Seg = wire.Segment{Kind: wire.KindLink, Data: in.AppendTo(nil)}
		w.Small(&w.Seg)
		w.Note(build.RecLink, 0, 0, uint64(i), 0, false)
	}
}

// AppendOwnLink says what link the frame leaves on, whether that is news or not.
func (s *Session) AppendOwnLink(w *build.Frame, i int) {
	if s.Trust.Sealer == nil {
		return
	}
	in := s.e.linkInfo(i)
	w.Seg = wire.Segment{Kind: wire.KindLink, Data: in.AppendTo(nil)}
	w.Small(&w.Seg)
}
