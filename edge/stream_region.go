package edge

import (
	"fmt"
	"io"
)

// Streams into registered memory (VMMC §4.1, PROTOCOL clauses 11 and 15.2). ReadRegion has the peer's bytes put where
// they belong, instead of into the ring. It does so by aims: redirections of parts of the ring. An aim that is posted
// before the peer may send its bytes is early: it gets all of them, and ends by itself. Therefore pay posts the aims
// that the next credit allows before the credit, in one ring. Only aims at bytes that the peer could already send when
// ReadRegion began can be late. A late aim is ended when its bytes have come, and bytes that were not redirected are
// copied.
//
// When ReadRegion returns, all its aims have ended. Bytes that they received and that are not read are in the ring, as
// if there had been no aims. The exception is a daemon that does not run when a deadline passes: then the aims stay,
// and the next read begins with them.

// leastAimed is the shortest rest of a read for which aims pay (BenchmarkStreamRegion).
const leastAimed = 64 << 10

// aim is a redirection of bytes [lo, hi) of a stream.
type aim struct {
	r      *Redirection
	lo, hi uint64
}

// plan is where bytes of a stream shall go. attachment.out.post guards it, since pay adds aims.
type plan struct {
	to   *Region // nil: nothing is aimed any more
	off  int     // of the byte at position base
	base uint64
	end  uint64
	next uint64 // from here on nothing was aimed yet
	aims []aim  // in order
}

// ReadRegion reads n bytes into registered memory of the Device, from byte off of r on. Unlike Read it waits for all of
// them, as io.ReadFull does, and returns io.ErrUnexpectedEOF when the stream ends before. Long reads are not copied:
// the transport puts the bytes there as they arrive. That memory is the stream's until ReadRegion returns; what lies
// behind the bytes that were read may have changed. After ErrDaemonSilent it is the stream's until the next read.
func (s *Stream) ReadRegion(r *Region, off, n int) (int, error) {
	if err := s.checkRegion("ReadRegion", r, off, n); err != nil {
		return 0, s.opError("read", err)
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	done, err := s.fill(r, off, n)
	if err == io.EOF && done > 0 {
		err = io.ErrUnexpectedEOF
	}
	return done, s.fault("read", err)
}

// lastCopied is how much of the end of a WriteRegion is copied to the send buffer. The part of it that fits the peer's
// ring is on its way when the rest has arrived, so successive writes follow each other without a pause.
const lastCopied = DefaultStreamBuffer

// WriteRegion writes n bytes of registered memory of the Device, from byte off of r on, as Write would. Long writes are
// not copied, except at their end: the transport sends them from that memory. WriteRegion returns once the memory is
// the caller's again. So it may return late after a deadline or Close if the daemon or the peer does not answer.
func (s *Stream) WriteRegion(r *Region, off, n int) (int, error) {
	if err := s.checkRegion("WriteRegion", r, off, n); err != nil {
		return 0, s.opError("write", err)
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	from := source{region: r, off: off}
	if r.whole() {
		from.direct = max(n-lastCopied, 0)
	}
	begin := s.out.sent.Load()
	done, err := s.give(n, from)
	if direct := min(done, from.direct); direct > 0 {
		s.out.until = begin + uint64(direct)
		s.out.wait(waitHalf)
		s.out.until = 0
	}
	return done, s.fault("write", err)
}

// checkRegion checks memory that a stream shall use.
func (s *Stream) checkRegion(call string, r *Region, off, n int) error {
	switch {
	case r == nil || r.d.dev != s.c.d.dev:
		return invalid("%s: the region must be of the stream's Device", call)
	case r.d != s.c.d:
		return ErrStale
	case r.bytes == nil:
		return invalid("%s: a Region of GrantRange has no bytes here; use Register, GrantHeap, or Read and Write", call)
	case off < 0 || n < 0 || off > r.size || n > r.size-off:
		return fmt.Errorf("%w: %s of %d bytes at %d, of a region of %d", ErrBounds, call, n, off, r.size)
	}
	return nil
}

// fill is ReadRegion. The caller holds in.mu.
func (s *Stream) fill(r *Region, off, n int) (done int, err error) {
	i := &s.in
	for done < n && err == nil {
		if err = s.settle(); err != nil {
			break
		}
		var m int
		switch over := s.over(); {
		case over != nil:
			return done, over
		case i.tail.Load() > i.head.Load():
			m, err = s.drain(r, off+done, n-done)
			s.grant()
		case n-done >= leastAimed && s.c.d.redirects() && r.whole():
			m, err = s.fillAimed(r, off+done, n-done)
		default:
			i.wait(waitHalf)
		}
		done += m
	}
	return done, err
}

// over returns why nothing more can be read, nil while there is something or more may come.
func (s *Stream) over() error {
	i := &s.in
	err, ended, fin := s.check(&i.half), s.ended(), i.fin.Load() // before tail: bytes precede them
	switch {
	case err != nil:
		return err
	case i.tail.Load() > i.head.Load():
		return nil
	case fin:
		return io.EOF
	}
	return ended
}

// drain copies up to n of the bytes that are in the ring to off.
func (s *Stream) drain(r *Region, off, n int) (done int, err error) {
	i := &s.in
	head := i.head.Load()
	n = int(min(i.tail.Load()-head, uint64(n)))
	for done < n {
		at := int(head) & (s.ring - 1)
		m := min(n-done, s.ring-at)
		if err := r.copyFrom(off+done, s.region, at, m); err != nil {
			return done, err
		}
		done += m
		head += uint64(m)
		i.head.Store(head)
	}
	return done, nil
}

// fillAimed reads n bytes, none of which is in the ring yet, and returns early when what it waits for may never come.
func (s *Stream) fillAimed(r *Region, off, n int) (done int, err error) {
	i, d := &s.in, s.c.d
	base := i.head.Load()
	end := base + uint64(n)
	d.out.post.Lock()
	i.plan = plan{to: r, off: off, base: base, end: end, next: base, aims: i.plan.aims}
	s.aimUpTo(i.granted.Load() + uint64(s.ring))
	d.publish()
	d.out.post.Unlock()
	for head := base; head < end && err == nil; head = i.head.Load() {
		a, aimed := s.oldestAim()
		most := end
		if aimed {
			most = a.lo
		}
		i.want = head + 1
		if aimed = most == head; aimed {
			i.want = a.hi
		}
		if i.tail.Load() < i.want {
			if i.wait(waitHalf); i.tail.Load() < i.want {
				break
			}
		}
		if aimed {
			err = s.takeAim(&a, off+int(head-base))
		} else {
			_, err = s.drain(r, off+int(head-base), int(most-head))
		}
		s.grant()
	}
	d.out.post.Lock()
	i.plan.to = nil
	d.out.post.Unlock()
	i.want = 0
	return int(i.head.Load() - base), err
}

// aimUpTo aims at bytes before a position, as far as the queue has room. The caller holds attachment.out.post and
// publishes.
func (s *Stream) aimUpTo(limit uint64) {
	p := &s.in.plan
	if p.to == nil {
		return
	}
	quarter := s.ring / 4 // when so much was read the peer is told: no aim holds that up, or crosses the ring's end
	for p.next = max(p.next, s.in.tail.Load()); p.next < min(p.end, limit); {
		at := int(p.next) & (s.ring - 1)
		n := min(quarter-at%quarter, int(min(p.end, limit)-p.next))
		r, err := s.export.redirect(at, n, p.to, p.off+int(p.next-p.base))
		if err != nil {
			return // the ring has them
		}
		p.aims = append(p.aims, aim{r, p.next, p.next + uint64(n)})
		p.next += uint64(n)
	}
}

func (s *Stream) oldestAim() (a aim, ok bool) {
	d := s.c.d
	d.out.post.Lock()
	defer d.out.post.Unlock()
	if len(s.in.plan.aims) == 0 {
		return aim{}, false
	}
	return s.in.plan.aims[0], true
}

// takeAim takes the bytes of the oldest aim, all of which have come. They belong at off.
func (s *Stream) takeAim(a *aim, off int) error {
	if err := s.endAims(1); err != nil {
		return err
	}
	at := int(a.lo) & (s.ring - 1)
	err := a.r.rest(func(lo, hi int) error { return a.r.to.copyFrom(off+lo, s.region, at+lo, hi-lo) })
	if err == nil {
		s.in.head.Store(a.hi)
		s.dropAims(1)
	}
	return err
}

// settle ends all aims: what they have is in the ring then. The caller holds in.mu, and has no plan.
func (s *Stream) settle() error {
	p := &s.in.plan
	if len(p.aims) == 0 {
		return nil
	}
	if err := s.endAims(len(p.aims)); err != nil {
		return err
	}
	for _, a := range p.aims {
		at := int(a.lo) & (s.ring - 1)
		for _, span := range a.r.spans {
			if err := s.region.copyFrom(at+span.Off, a.r.to, a.r.toOff+span.Off, span.Len); err != nil {
				return err
			}
		}
	}
	s.dropAims(len(p.aims))
	return nil
}

// endAims ends the n oldest aims. It gives up if the call has to return and the daemon does not run. After the death of
// the daemon nobody knows which bytes they got.
func (s *Stream) endAims(n int) error {
	i, d := &s.in, s.c.d
	d.out.post.Lock()
	i.ending = append(i.ending[:0], i.plan.aims[:n]...)
	d.out.post.Unlock()
	defer func() { i.ending = i.ending[:0] }()
	for k := range i.ending {
		for r := i.ending[k].r; !r.op.settled() && !r.postEnd(); {
			if s.stuck() {
				return s.check(&i.half)
			}
			i.wait(waitRoom)
		}
	}
	if !i.ended() {
		i.wait(waitHalf)
	}
	switch {
	case !i.ended():
		return s.check(&i.half)
	case d.Err() != nil:
		return d.Err()
	}
	return nil
}

// ended reports whether the aims that shall end have.
func (i *inbound) ended() bool {
	for k := range i.ending {
		if !i.ending[k].r.op.settled() {
			return false
		}
	}
	return true
}

// stuck reports whether a call must return although the daemon says nothing.
func (s *Stream) stuck() bool { return s.c.d.life.silent.Load() && s.check(&s.in.half) != nil }

// dropAims forgets the n oldest aims.
func (s *Stream) dropAims(n int) {
	d, p := s.c.d, &s.in.plan
	d.out.post.Lock()
	defer d.out.post.Unlock()
	left := copy(p.aims, p.aims[n:])
	clear(p.aims[left:])
	p.aims = p.aims[:left]
}
