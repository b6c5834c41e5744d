package engine

import (
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/remap"
)

// Receiving in place. A driver that can scatter asks where the payloads of the next frames will belong and receives
// them there; a forecast that was wrong costs a copy, as a driver that cannot scatter always does. Forecast places are
// bytes of operations in progress that have not been received, so a wrong payload in one of them is overwritten before
// anybody is told of the range.
//
// On a link that announced H (clause 2.6) frames arrive whole from a page boundary on: slots are whole pages of the
// Exchanger's pool, and the headers are shuffled out of them (paper 2.3.2). Without an Exchanger nothing is forecast
// there, since headers have no business in a region: payloads are copied from the driver's pages.

// Forecast fills slots with the places where the bulk payloads of the next frames on link i are expected, each once,
// and returns how many. They are valid until any other method is called but Handle, to which
// the frames go that were received there.
func (e *Endpoint) Forecast(i int, slots [][]byte) (n int) {
	p := &e.forecasts[i]
	number, ok := p.Leads()
	s := e.nodes.Sessions.ByNumber[number]
	// a sealed frame is opened into scratch first
	shuffles := e.net.Links[i].Shuffle != 0
	if !ok || s == nil || s.State != peering.SessionOpen || s.Trust.Opener != nil || s.Inside ||
		shuffles && e.cfg.Exchanger == nil {
		return 0
	}
	return e.ops.Slots(&s.Ops, p, shuffles, slots)
}

// joinStray joins the frames of a batch from the first on that does not belong in the slot it was received into, before
// any of the batch is handled: what the tail of one frame, or a segment it releases, writes may lie where another
// waits.
func (e *Endpoint) joinStray(i int, frames []Arrival) {
	k := 0
	for k < len(frames) && e.fits(i, k, frames[k].Head, frames[k].Body) {
		k++
	}
	joinAll(frames[k:])
}

func joinAll(frames []Arrival) {
	for k := range frames {
		frames[k].Join()
	}
}

// fits reports whether the k-th frame of a batch belongs in slot k of the latest Forecast, as far as its headers, not
// yet verified, say. It changes nothing.
func (e *Endpoint) fits(i, k int, head, body []byte) bool {
	if e.net.Links[i].Shuffle != 0 {
		body = head // the pages are as many as the payload's
	} else if len(head) != wire.HeadLen {
		return false
	}
	if len(head) < wire.HeadLen || len(body) == 0 {
		return false
	}
	return wire.PeekBulk(head[frame.HeaderLen:], &e.scratch.peek) &&
		e.forecasts[i].Takes(&e.scratch.peek, k, len(body))
}

// handleParts takes a frame received into a slot of Forecast. It reports false, and nothing has happened, if the
// payload does not belong where it is, although it fits.
func (e *Endpoint) handleParts(now mono.Time, i int, a *frame.Rx) bool {
	f, head, body, rest := &e.scratch.frame, a.Head, a.Body, a.Rest
	H := int(e.net.Links[i].Shuffle)
	if H != 0 {
		if H != wire.HeadLen || len(head) < H || len(rest) < H {
			return false
		}
		body = head
		if f.DecodeParts(head[frame.HeaderLen:H], body, rest[H:]) != nil || int(f.Shuffle) != H {
			return false
		}
	} else if len(head) != wire.HeadLen || len(body) == 0 || f.DecodeParts(head[frame.HeaderLen:], body, rest) != nil ||
		f.Shuffle != 0 {
		return false
	}
	s := e.nodes.Sessions.ByNumber[f.Session]
	if f.Type != wire.TypeData || s == nil || s.State != peering.SessionOpen || s.Trust.Opener != nil || s.Inside {
		return false
	}
	if !e.ops.InPlace(&s.Ops, &f.Bulk, body) {
		return false
	}
	if H != 0 && !e.unshuffle(f, rest) {
		return false
	}
	e.received(i, 1, a.Len())
	e.onData(now, s, i, f, true)
	return true
}

// unshuffle puts the first payload bytes, with which rest begins, over the headers at the start of f's pages, unless
// the payload is damaged. From then on f is a frame that never was shuffled.
func (e *Endpoint) unshuffle(f *wire.Frame, rest []byte) bool {
	H := int(f.Shuffle)
	if f.Flags&wire.FlagPayloadSum != 0 && wire.Sum(wire.Sum(0, f.Payload[H:]), rest[:H]) != f.Bulk.Sum {
		return false
	}
	remap.Unshuffle(f.Payload, rest, H)
	f.Flags &^= wire.FlagPayloadSum | wire.FlagShuffled
	f.Shuffle = 0
	e.Count.Placing.FramesShuffled++
	return true
}
