package stream

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"multiedge/edge"
)

// inbound is the direction towards us: the peer's writes fill the ring, Read empties it. Counts are of bytes since the
// beginning.
type inbound struct {
	half
	tail    atomic.Uint64 // arrived; changed by notifications
	fin     atomic.Bool   // nothing follows tail; set by a notification
	head    atomic.Uint64 // read; changed under mu
	seeing  atomic.Bool   // seeToCredit runs
	paying  sync.Mutex    // guards plan, and the changes of granted
	granted atomic.Uint64 // of head, what the peer knows of
	plan    plan          // of ReadRegion
	bulk    bool          // the latest Read took a piece as long as any; guarded by mu

	// What the call under way waits for; guarded by mu.
	want   uint64 // a position that tail reaches; 0: any behind head
	ending []aim  // their end, before anything else
}

// piece takes the peer's word that a piece is in the ring (clause 11.4), or says what is wrong with it.
func (i *inbound) piece(pos uint64, n, ring int) (bad string) {
	tail := i.tail.Load()
	switch {
	case n <= 0 || i.fin.Load():
		return "an empty piece, or one after the end"
	case pos != tail&immCount:
		return fmt.Sprintf("a piece for position %d where %d is next", pos, tail&immCount)
	case int64(n) > int64(i.granted.Load()+uint64(ring)-tail):
		return fmt.Sprintf("%d bytes where there is room for %d", n, i.granted.Load()+uint64(ring)-tail)
	}
	i.tail.Store(tail + uint64(n))
	i.cond.Wake()
	return ""
}

// end takes the peer's word that nothing more follows (clause 11.6).
func (i *inbound) end(pos uint64) (bad string) {
	if tail := i.tail.Load() & immCount; pos != tail || i.fin.Load() {
		return fmt.Sprintf("an end at position %d of a stream that is at %d, or a second one", pos, tail)
	}
	i.fin.Store(true)
	i.cond.Wake()
	return ""
}

// read is Read. The caller holds in.mu.
func (s *Conn) read(p []byte) (int, error) {
	i := &s.in
	for {
		err := s.settle()
		if err == nil {
			err = s.check(&i.half)
		}
		if err != nil || len(p) == 0 {
			return 0, err
		}
		ended := s.ended() // these first, since bytes precede them
		fin := i.fin.Load()
		n, err := s.take(p)
		if n > 0 {
			i.bulk = n >= s.ring/4
		}
		switch {
		case n > 0 || err != nil:
			s.grant()
			return n, err
		case fin:
			return 0, io.EOF
		case ended != nil:
			return 0, ended
		}
		i.wait()
	}
}

// canRead is ready of the half.
func (s *Conn) canRead() bool {
	i := &s.in
	if len(i.ending) > 0 {
		return i.ended() || s.stuck()
	}
	return i.tail.Load() >= max(i.want, i.head.Load()+1) || i.fin.Load() || s.check(&i.half) != nil || s.ended() != nil
}

// fewToRead is for how much Read waits (edge/patience.go): no operation of ours matters, but for redirections, of whose
// end it is told in any case. Where long pieces follow each other, one is seldom alone: two are taken by one switch to
// the program, half of what the peer may have under way, so that it goes on meanwhile.
func (s *Conn) fewToRead() int {
	if s.in.bulk && s.in.plan.to == nil {
		return -2
	}
	return 0
}

// take copies what is there to p.
func (s *Conn) take(p []byte) (int, error) {
	i := &s.in
	head := i.head.Load()
	n := int(min(i.tail.Load()-head, uint64(len(p))))
	for done := 0; done < n; {
		at := int(head) & (s.ring - 1)
		m := min(n-done, s.ring-at)
		if _, err := s.region.ReadAt(p[done:done+m], int64(at)); err != nil {
			return done, err
		}
		head += uint64(m)
		i.head.Store(head)
		done += m
	}
	return n, nil
}

// due reports whether the peer should be told how much was read: once it is a quarter of the ring.
func (s *Conn) due() bool { return s.in.head.Load()-s.in.granted.Load() >= uint64(s.ring/4) }

// grant tells the peer how much was read, if that is due. If the queue has no room, seeToCredit does so later; if the
// peer's ring is not known yet, Changed does. No further Read is needed.
func (s *Conn) grant() {
	if s.due() && !s.pay() && s.in.seeing.CompareAndSwap(false, true) {
		go s.seeToCredit()
	}
}

// seeToCredit waits for room until the credit that found none is paid. Perhaps nobody else waits on the Device, and the
// peer waits for this credit.
func (s *Conn) seeToCredit() {
	seeing := &s.in.seeing
	for {
		for !s.pay() {
			s.room.WaitRoom(context.Background())
		}
		seeing.Store(false)
		if s.pay() || !seeing.CompareAndSwap(false, true) {
			return
		}
	}
}

// pay posts the credit that is due. It reports false when there is no room for the operation.
func (s *Conn) pay() bool {
	i := &s.in
	i.paying.Lock()
	defer i.paying.Unlock()
	if !s.due() || i.fin.Load() || s.ended() != nil {
		return true
	}
	to, err := s.peer()
	if to == nil || err != nil {
		return true
	}
	before, head := i.granted.Load(), i.head.Load()
	s.aimUpTo(head + uint64(s.ring)) // before the peer may send those bytes
	i.granted.Store(head)            // first: the peer is quick
	_, err = s.c.Post(edge.NoWait, &edge.Work{Kind: edge.Write, Flags: edge.Notify,
		Imm: immCredit | uint32(head-before), Local: s.region, Remote: to})
	if err != nil {
		i.granted.Store(before)
	}
	return err != edge.ErrAgain
}

// maxPieces is how many pieces of a stream are on their way at once.
const maxPieces = 64

// outbound is the direction towards the peer.
type outbound struct {
	half
	size    int           // bytes of the send buffer
	sent    atomic.Uint64 // given to the transport; changed under mu
	acked   atomic.Uint64 // of sent, what the peer has read and told us of; changed by notifications
	shut    atomic.Bool   // CloseWrite was called
	fin     atomic.Bool   // the peer was told; changed under mu
	crowded bool          // Write waits for room for an operation, and for nothing else; guarded by mu
	until   uint64        // a position before which no byte flies: what WriteRegion waits for; guarded by mu

	// Pieces of sent whose bytes the transport may still need: a ring; guarded by mu.
	freed  uint64 // bytes before them: their place in the send buffer is free
	pieces [maxPieces]piece
	oldest int
	flying int
}

type piece struct {
	op edge.Op
	n  int
}

// credit takes the peer's word that it has read n bytes more (clause 11.5), or says what is wrong with it.
func (o *outbound) credit(n uint64) (bad string) {
	acked, sent := o.acked.Load(), o.sent.Load()
	if n == 0 || int64(n) > int64(sent-acked) {
		return fmt.Sprintf("credit for %d bytes of %d", n, sent-acked)
	}
	o.acked.Store(acked + n)
	o.cond.Wake()
	return ""
}

// write is Write. The caller holds out.mu.
func (s *Conn) write(p []byte) (done int, err error) { return s.give(len(p), source{bytes: p}) }

// source is the data of a write: bytes, or registered memory of which the first direct bytes are sent in place.
// Everything else is copied to the send buffer.
type source struct {
	bytes  []byte
	region *edge.Region
	off    int
	direct int
}

// give gives n bytes of a source to the transport.
func (s *Conn) give(size int, from source) (done int, err error) {
	for {
		if err := s.writable(); err != nil || done == size {
			return done, err
		}
		n, err := s.send(size-done, from, done)
		done += n
		switch {
		case err == edge.ErrAgain:
			s.out.crowded = true
			s.out.waitRoom()
			s.out.crowded = false
		case err != nil:
			return done, err
		case done == size:
			return done, nil
		case n == 0:
			s.out.wait()
		}
	}
}

// writable returns why nothing can be written any more, if so.
func (s *Conn) writable() error {
	if err := s.check(&s.out.half); err != nil {
		return err
	}
	if s.out.shut.Load() {
		return errShut
	}
	return s.ended()
}

// canWrite is ready of the half.
func (s *Conn) canWrite() bool {
	if o := &s.out; o.until > 0 {
		o.reap()
		return o.freed >= o.until
	}
	if s.writable() != nil {
		return true
	}
	if s.out.crowded {
		return false
	}
	to, err := s.peer()
	return err != nil || to != nil && s.out.room(int(to.Size())) > 0
}

// fewToWrite is how many pieces the transport must be done with before canWrite, as far as that is known: none if the
// peer's ring is full, of which the peer's credit tells.
func (s *Conn) fewToWrite() int {
	o := &s.out
	if o.until > 0 {
		n, freed := 0, o.freed
		for ; n < o.flying && freed < o.until; n++ {
			freed += uint64(o.pieces[(o.oldest+n)%maxPieces].n)
		}
		return max(1, n)
	}
	to, err := s.peer()
	if err == nil && (to == nil || o.sent.Load()-o.acked.Load() >= uint64(to.Size())) {
		return 0
	}
	return 1
}

// send gives one piece of up to most bytes, which begins at byte skip of the source, to the transport and returns its
// length, 0 when there is no room for any; ErrAgain means that the queue is full.
func (s *Conn) send(most int, from source, skip int) (int, error) {
	o := &s.out
	to, err := s.peer()
	if to == nil || err != nil {
		return 0, err
	}
	n := min(most, o.room(int(to.Size())))
	if n == 0 {
		return 0, nil
	}
	sent := o.sent.Load()
	local, at := s.region, s.ring+int(sent)&(o.size-1)
	switch {
	case skip < from.direct:
		n = min(n, from.direct-skip)
		local, at = from.region, from.off+skip
	case from.region != nil:
		err = core.Copy(local, at, from.region, from.off+skip, n)
	default:
		_, err = local.WriteAt(from.bytes[skip:skip+n], int64(at))
	}
	if err != nil {
		return 0, err
	}
	o.sent.Store(sent + uint64(n)) // first: the peer is quick
	// Fenced, so that the bytes before are in place when the peer is notified (clause 11.4).
	op, err := s.c.Post(edge.NoWait, &edge.Work{
		Kind: edge.Write, Flags: edge.Notify | edge.BackwardFence, Imm: immData | uint32(sent&immCount),
		Local: local, LocalOff: at, Len: n, Remote: to, RemoteOff: int(sent) & int(to.Size()-1),
	})
	if err != nil {
		o.sent.Store(sent)
		return 0, inStreamTerms(err)
	}
	o.pieces[(o.oldest+o.flying)%maxPieces] = piece{op, n}
	o.flying++
	return n, nil
}

// room returns how long the next piece can be: it neither passes what the peer and the send buffer have room for, nor
// the end of either, nor a quarter of either, so that pieces follow each other while earlier ones are read. The caller
// holds mu.
func (o *outbound) room(ring int) int {
	o.reap()
	if o.flying == maxPieces {
		return 0
	}
	sent := o.sent.Load()
	return min(
		ring-int(sent-o.acked.Load()), ring-int(sent)&(ring-1), ring/4,
		o.size-int(sent-o.freed), o.size-int(sent)&(o.size-1), o.size/4,
	)
}

// reap forgets pieces that the transport needs no more. The caller holds mu.
func (o *outbound) reap() {
	for o.flying > 0 && core.Settled(o.pieces[o.oldest].op) {
		o.freed += uint64(o.pieces[o.oldest].n)
		o.oldest = (o.oldest + 1) % maxPieces
		o.flying--
	}
}

// finish tells the peer that nothing more follows, unless it was told. It waits without the lock: a Write meanwhile
// fails at once.
func (s *Conn) finish(ctx context.Context) error {
	if s.out.fin.Load() {
		return nil
	}
	if err := s.ended(); err != nil {
		return err
	}
	to, err := s.c.Import(ctx, ringName)
	if err == nil {
		to, err = s.adopt(to)
	}
	for err == nil {
		if err = s.tell(to); err == nil {
			return nil
		}
		if err == edge.ErrAgain {
			err = s.room.WaitRoom(ctx)
		}
	}
	return inStreamTerms(err)
}

// tell posts the end of what is written, once. ErrAgain means that the queue is full.
func (s *Conn) tell(to *edge.RemoteRegion) error {
	o := &s.out
	o.mu.Lock() // a Write under way ends, since shut or closed is set
	defer o.mu.Unlock()
	if o.fin.Load() {
		return nil
	}
	_, err := s.c.Post(edge.NoWait, &edge.Work{Kind: edge.Write, Flags: edge.Notify | edge.BackwardFence,
		Imm: immFin | uint32(o.sent.Load()&immCount), Local: s.region, Remote: to})
	o.fin.Store(err == nil)
	return err
}
