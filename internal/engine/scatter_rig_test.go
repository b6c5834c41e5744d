package engine_test

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// scatterer receives for one node as the daemon does with a driver that scatters.
type scatterer struct {
	t     testing.TB
	e     *engine.Endpoint
	bufs  [32][]byte
	slots [32][]byte
	parts [32]engine.Arrival

	placed, joined int
	pages          bool   // the driver receives at page boundaries
	after          func() // between Forecast and the first frame; may be nil
}

func newScatterer(r *rig, i int) *scatterer {
	s := &scatterer{t: r.t, e: r.n[i].e}
	for k := range s.bufs {
		s.bufs[k] = make([]byte, 16<<10)
	}
	return s
}

// split puts a frame where recvmmsg would.
func (s *scatterer) split(k int, bytes, slot []byte) {
	buf := s.bufs[k]
	if s.pages {
		if addressOf(slot)%4096 != 0 || len(slot)%4096 != 0 {
			s.t.Fatalf("a slot of %d bytes that is not whole pages", len(slot))
		}
		n := copy(slot, bytes)
		s.parts[k].Rx = frame.Rx{Head: slot[:n], Rest: buf[n:][:copy(buf[n:], bytes[n:])], Buf: buf}
		return
	}
	head := min(len(bytes), wire.HeadLen)
	body := min(len(bytes)-head, len(slot))
	copy(buf, bytes[:head])
	copy(slot, bytes[head:head+body])
	copy(buf[head:], bytes[head+body:])
	s.parts[k].Rx = frame.Rx{Head: buf[:head], Body: slot[:body], Rest: buf[head:][:len(bytes)-head-body], Buf: buf}
}

// give delivers frames on one link, up to most of them at a time.
func (s *scatterer) give(r *rig, link int, frames [][]byte, most int) {
	for len(frames) > 0 {
		n := min(s.e.Forecast(link, s.slots[:]), len(frames), most)
		s.check(s.slots[:n])
		if n == 0 {
			n = min(len(frames), most)
			for _, f := range frames[:n] {
				s.e.Handle(r.now, link, engine.Whole(f))
			}
		} else {
			s.batch(r, link, frames[:n])
		}
		s.e.Placed()
		frames = frames[n:]
	}
}

// batch is what shard.receiveInPlace does.
func (s *scatterer) batch(r *rig, link int, frames [][]byte) {
	for k, f := range frames {
		s.split(k, f, s.slots[k])
	}
	if s.after != nil {
		s.after()
	}
	s.e.Handle(r.now, link, s.parts[:len(frames)]...)
	for k := range frames {
		if s.parts[k].Buf != nil {
			s.placed++
		} else {
			s.joined++
		}
	}
}

// check: slots are not empty and do not overlap.
func (s *scatterer) check(slots [][]byte) {
	s.t.Helper()
	for i, a := range slots {
		if len(a) == 0 {
			s.t.Fatalf("slot %d of %d is empty", i, len(slots))
		}
		for _, b := range slots[:i] {
			pa, pb := addressOf(a), addressOf(b)
			if pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a)) {
				s.t.Fatalf("slot %d overlaps another", i)
			}
		}
	}
}

// bytesOf groups flights by link.
func bytesOf(frames []flight, link int) (out [][]byte) {
	for _, f := range frames {
		if f.link == link {
			out = append(out, f.b)
		}
	}
	return out
}
