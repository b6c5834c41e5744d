package engine_test

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// scatterer receives for one node as the daemon does with a driver that scatters.
type scatterer struct {
	t     testing.TB
	e     *engine.Endpoint
	bufs  [32][]byte
	slots [32][]byte
	parts [32]pieces

	placed, joined int
	after          func() // between Forecast and the first frame; may be nil
}

// pieces is a frame in the form of linkdrv.RxFrame.
type pieces struct{ head, body, rest, buf []byte }

func newScatterer(r *rig, i int) *scatterer {
	s := &scatterer{t: r.t, e: r.n[i].e}
	for k := range s.bufs {
		s.bufs[k] = make([]byte, 16<<10)
	}
	return s
}

// split puts a frame where recvmmsg would.
func (s *scatterer) split(k int, frame, slot []byte) {
	buf := s.bufs[k]
	head := min(len(frame), wire.HeadLen)
	body := min(len(frame)-head, len(slot))
	copy(buf, frame[:head])
	copy(slot, frame[head:head+body])
	copy(buf[head:], frame[head+body:])
	s.parts[k] = pieces{buf[:head], slot[:body], buf[head:][:len(frame)-head-body], buf}
}

func (p *pieces) join() []byte {
	at := len(p.head)
	copy(p.buf[at+len(p.body):], p.rest)
	copy(p.buf[at:], p.body)
	return p.buf[:at+len(p.body)+len(p.rest)]
}

// give delivers frames on one link, up to most of them at a time.
func (s *scatterer) give(r *rig, link int, frames [][]byte, most int) {
	for len(frames) > 0 {
		n := min(s.e.Forecast(link, s.slots[:]), len(frames), most)
		s.check(s.slots[:n])
		if n == 0 {
			n = min(len(frames), most)
			for _, f := range frames[:n] {
				s.e.HandleFrame(r.now, link, f)
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
	n, fit, done := len(frames), 0, 0
	for k, f := range frames {
		s.split(k, f, s.slots[k])
	}
	if s.after != nil {
		s.after()
	}
	for fit < n && s.e.Fits(link, fit, s.parts[fit].head, s.parts[fit].body) {
		fit++
	}
	var whole [32][]byte
	for k := fit; k < n; k++ {
		whole[k] = s.parts[k].join()
	}
	for done < fit && s.e.HandleParts(r.now, link, s.parts[done].head, s.parts[done].body, s.parts[done].rest) {
		done++
	}
	for k := done; k < fit; k++ {
		whole[k] = s.parts[k].join()
	}
	for k := done; k < n; k++ {
		s.e.HandleFrame(r.now, link, whole[k])
	}
	s.placed += done
	s.joined += n - done
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
