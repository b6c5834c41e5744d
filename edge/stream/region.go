package stream

import (
	"io"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
)

// Streams into registered memory (VMMC §4.1, PROTOCOL clauses 11 and 15.2). ReadRegion has the peer's bytes put where
// they belong, instead of into the ring. It does so by aims: redirections of parts of the ring. An aim that is posted
// before the peer may send its bytes is early: it gets all of them, and ends by itself. Therefore pay posts the aims
// that the next credit allows before the credit; the transport takes both in their order. Only aims at bytes that the
// peer could already send when ReadRegion began can be late. A late aim is ended when its bytes have come, and bytes
// that were not redirected are copied.
//
// When ReadRegion returns, all its aims have ended. Bytes that they received and that are not read are in the ring, as
// if there had been no aims. The exception is a daemon that does not run when a deadline passes: then the aims stay,
// and the next read begins with them.

// leastAimed is the shortest rest of a read for which aims pay (BenchmarkStreamRegion).
const leastAimed = 64 << 10

// aim is a redirection of bytes [lo, hi) of a stream.
type aim struct {
	r      inner.Redirection
	lo, hi uint64
	to     *edge.Region // at toOff
	toOff  int
}

// plan is where bytes of a stream shall go. inbound.paying guards it, since pay adds aims.
type plan struct {
	to   *edge.Region // nil: nothing is aimed any more
	off  int          // of the byte at position base
	base uint64
	end  uint64
	next uint64 // from here on nothing was aimed yet
	aims []aim  // in order
}

// ReadRegion reads n bytes into registered memory of the Device, from byte off of r on. Unlike Read it waits for all of
// them, as io.ReadFull does, and returns io.ErrUnexpectedEOF when the stream ends before. Long reads are not copied:
// the transport puts the bytes there as they arrive. That memory is the stream's until ReadRegion returns; what lies
// behind the bytes that were read may have changed. After edge.ErrDaemonSilent it is the stream's until the next read.
func (s *Conn) ReadRegion(r *edge.Region, off, n int) (int, error) {
	if err := core.Check(s.c, r, off, n); err != nil {
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
const lastCopied = DefaultBuffer / 2

// WriteRegion writes n bytes of registered memory of the Device, from byte off of r on, as Write would. Long writes are
// not copied, except at their end: the transport sends them from that memory. WriteRegion returns once the memory is
// the caller's again. So it may return late after a deadline or Close if the daemon or the peer does not answer.
func (s *Conn) WriteRegion(r *edge.Region, off, n int) (int, error) {
	if err := core.Check(s.c, r, off, n); err != nil {
		return 0, s.opError("write", err)
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	from := source{region: r, off: off}
	if core.Whole(r) {
		from.direct = max(n-lastCopied, 0)
	}
	begin := s.out.sent.Load()
	done, err := s.give(n, from)
	if direct := min(done, from.direct); direct > 0 {
		s.out.until = begin + uint64(direct)
		s.out.wait()
		s.out.until = 0
	}
	return done, s.fault("write", err)
}

// fill is ReadRegion. The caller holds in.mu.
func (s *Conn) fill(r *edge.Region, off, n int) (done int, err error) {
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
		case n-done >= leastAimed && core.Whole(r):
			m, err = s.fillAimed(r, off+done, n-done)
		default:
			i.wait()
		}
		done += m
	}
	return done, err
}

// over returns why nothing more can be read, nil while there is something or more may come.
func (s *Conn) over() error {
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
func (s *Conn) drain(r *edge.Region, off, n int) (done int, err error) {
	i := &s.in
	head := i.head.Load()
	n = int(min(i.tail.Load()-head, uint64(n)))
	for done < n {
		at := int(head) & (s.ring - 1)
		m := min(n-done, s.ring-at)
		if err := core.Copy(r, off+done, s.region, at, m); err != nil {
			return done, err
		}
		done += m
		head += uint64(m)
		i.head.Store(head)
	}
	return done, nil
}

// fillAimed reads n bytes, none of which is in the ring yet, and returns early when what it waits for may never come.
func (s *Conn) fillAimed(r *edge.Region, off, n int) (done int, err error) {
	i := &s.in
	base := i.head.Load()
	end := base + uint64(n)
	i.paying.Lock()
	i.plan = plan{to: r, off: off, base: base, end: end, next: base, aims: i.plan.aims}
	s.aimUpTo(i.granted.Load() + uint64(s.ring))
	i.paying.Unlock()
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
			if i.wait(); i.tail.Load() < i.want {
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
	i.paying.Lock()
	i.plan.to = nil
	i.paying.Unlock()
	i.want = 0
	return int(i.head.Load() - base), err
}

// aimUpTo aims at bytes before a position, as far as the queue has room. The caller holds paying.
func (s *Conn) aimUpTo(limit uint64) {
	p := &s.in.plan
	if p.to == nil {
		return
	}
	quarter := s.ring / 4 // when so much was read the peer is told: no aim holds that up, or crosses the ring's end
	for p.next = max(p.next, s.in.tail.Load()); p.next < min(p.end, limit); {
		at := int(p.next) & (s.ring - 1)
		n := min(quarter-at%quarter, int(min(p.end, limit)-p.next))
		toOff := p.off + int(p.next-p.base)
		r, err := core.Redirect(s.export, at, n, p.to, toOff)
		if err != nil {
			return // the ring has them
		}
		p.aims = append(p.aims, aim{r, p.next, p.next + uint64(n), p.to, toOff})
		p.next += uint64(n)
	}
}

func (s *Conn) oldestAim() (a aim, ok bool) {
	s.in.paying.Lock()
	defer s.in.paying.Unlock()
	if len(s.in.plan.aims) == 0 {
		return aim{}, false
	}
	return s.in.plan.aims[0], true
}

// takeAim takes the bytes of the oldest aim, all of which have come. They belong at off.
func (s *Conn) takeAim(a *aim, off int) error {
	if err := s.endAims(1); err != nil {
		return err
	}
	// What lies between the spans that were redirected is in the ring.
	at, next := int(a.lo)&(s.ring-1), 0
	for _, span := range a.r.Spans() {
		if span.Lo == span.Hi {
			continue
		}
		if err := core.Copy(a.to, off+next, s.region, at+next, span.Lo-next); err != nil {
			return err
		}
		next = span.Hi
	}
	if err := core.Copy(a.to, off+next, s.region, at+next, int(a.hi-a.lo)-next); err != nil {
		return err
	}
	s.in.head.Store(a.hi)
	s.dropAims(1)
	return nil
}

// settle ends all aims: what they have is in the ring then. The caller holds in.mu, and has no plan.
func (s *Conn) settle() error {
	p := &s.in.plan
	if len(p.aims) == 0 {
		return nil
	}
	if err := s.endAims(len(p.aims)); err != nil {
		return err
	}
	for _, a := range p.aims {
		at := int(a.lo) & (s.ring - 1)
		for _, span := range a.r.Spans() {
			err := core.Copy(s.region, at+span.Lo, a.to, a.toOff+span.Lo, span.Hi-span.Lo)
			if err != nil {
				return err
			}
		}
	}
	s.dropAims(len(p.aims))
	return nil
}

// endAims ends the n oldest aims. It gives up if the call has to return and the daemon does not run. After the death of
// the daemon nobody knows which bytes they got.
func (s *Conn) endAims(n int) error {
	i := &s.in
	i.paying.Lock()
	i.ending = append(i.ending[:0], i.plan.aims[:n]...)
	i.paying.Unlock()
	defer func() { i.ending = i.ending[:0] }()
	for k := range i.ending {
		for r := i.ending[k].r; !r.Settled() && !r.PostEnd(); {
			if s.stuck() {
				return s.check(&i.half)
			}
			i.waitRoom()
		}
	}
	if !i.ended() {
		i.wait()
	}
	if !i.ended() {
		return s.check(&i.half)
	}
	return core.Down(s.c)
}

// ended reports whether the aims that shall end have.
func (i *inbound) ended() bool {
	for k := range i.ending {
		if !i.ending[k].r.Settled() {
			return false
		}
	}
	return true
}

// stuck reports whether a call must return although the daemon says nothing.
func (s *Conn) stuck() bool { return core.Silent(s.c) && s.check(&s.in.half) != nil }

// dropAims forgets the n oldest aims.
func (s *Conn) dropAims(n int) {
	p := &s.in.plan
	s.in.paying.Lock()
	defer s.in.paying.Unlock()
	left := copy(p.aims, p.aims[n:])
	clear(p.aims[left:])
	p.aims = p.aims[:left]
}
