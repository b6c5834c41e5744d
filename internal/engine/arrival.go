package engine

import (
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Frames that a Reader has looked at.

// handleRead takes a frame that a Reader has looked at. It reports false, and nothing has happened, if what was found
// does not count.
func (e *Endpoint) handleRead(now mono.Time, i int, a *Arrival) bool {
	e.Count.Placing.FramesFromReaders++
	f := a.Decoded
	switch a.Found {
	case peering.FoundPlain:
		e.received(i, 1, len(a.Head))
		e.onPlainData(now, i, a.From(), f)
		return true
	case peering.FoundForged:
		e.received(i, 1, len(a.Head))
		var h wire.Header
		if b := a.Head[frame.HeaderLen:]; h.DecodeClear(b) == nil {
			if s := e.nodes.Session(h.Session); s != nil && s.Trust.Opener == a.Opener {
				s.Forged(h.KeyEpoch)
				return true
			}
		}
		e.Count.Reject.RejectedAuth++
		return true
	case peering.FoundOpened:
		if s := e.nodes.Session(f.Session); s != nil && s.Trust.Opener == a.Opener { // else it is over since
			e.received(i, 1, len(a.Head))
			if e.isNew(s, i, &f.Header) {
				e.onOpened(now, s, i, f, true)
			}
			return true
		}
	}
	return false
}
