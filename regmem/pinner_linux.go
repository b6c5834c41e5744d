package regmem

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Pinner is the thread that fills, locks and unlocks chunks of spaces, one for a process: an OS thread of its own,
// since the calls block for as long as the kernel takes. Each client has a bounded queue of its own. Turns go round by
// user, and by client of the user, and a turn is a piece of a chunk at most: a user who misses all the time, on memory
// that was never touched, in chunks of any size, holds up another's miss for one piece.
type Pinner struct {
	bell   int // eventfd that it sleeps on
	now    func() time.Duration
	asleep atomic.Bool
	ended  atomic.Bool
	done   chan struct{}

	mu    sync.Mutex // held while it works; guards what follows
	users []*pinUser
	next  int // whose turn it is

	most    int // islands that all spaces together may have; 0: any number
	islands int
}

// pinUser is a user who has queues.
type pinUser struct {
	id      uint64
	queues  []*PinQueue
	next    int
	islands int // of all spaces
}

const (
	pinQueueLen = 1024     // requests of one queue that may wait; a power of two
	pinPiece    = 64 << 10 // bytes that are filled and locked in one turn

	// PinQueueBytes is what a queue takes, with the answers to what is in it, for whoever is charged for it.
	PinQueueBytes = pinQueueLen * (48 + 2*48)
)

// PinQueue is what the spaces of one client ask of the pinner, in order.
type PinQueue struct {
	p          *Pinner
	user       *pinUser
	in         *PinInbox
	ring       [pinQueueLen]pinRequest
	head, tail atomic.Uint32
}

// PinInbox takes the answers to the queues of clients that one goroutine serves.
type PinInbox struct {
	post func() // has that goroutine call Answers

	lock    sync.Mutex
	answers []PinAnswer
	spare   []PinAnswer // the goroutine's
	posted  bool
}

type pinRequest struct {
	of    *PinnedSpace
	chunk uint64
	what  PinWork
	done  uint32        // bytes, by turns before
	asked time.Duration // when
	delay time.Duration // from then until the first turn
	took  time.Duration
}

// PinAnswer says what became of a chunk that was to be pinned.
type PinAnswer struct {
	Of    *PinnedSpace
	Chunk uint64
	Err   error
	Delay time.Duration // from Ask until the pinner began (DHL §V.C: miss delay)
	Took  time.Duration // by the pinner: filling and locking (DHL §V.C: miss processing)
}

// PinnedSpace is a space as the pinner knows it.
type PinnedSpace struct {
	Space *Space // the owner's
	mem   *Memory
	queue *PinQueue
	fill  func(bytes int) error // charges what is about to be filled, gives back if negative; on the pinner's thread
	huge  bool
	hints *Memory // a bit for each chunk, set while it is pinned; nil: none
	gone  bool
	locks islands
	// bytes that were filled; the owner of the charge reads it after Forget
	filled int
}

// NewPinner starts a pinner, which tells how long its work takes by a clock that any goroutine may read.
func NewPinner(now func() time.Duration) (*Pinner, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("regmem: pinner: eventfd: %w", err)
	}
	p := &Pinner{bell: fd, now: now, done: make(chan struct{}),
		most: SpaceMappings(MostMappings()) / 2}
	go p.run()
	return p, nil
}

// Close ends it. Nobody asks any more.
func (p *Pinner) Close() {
	p.ended.Store(true)
	p.ring()
	<-p.done
	unix.Close(p.bell)
}

// NewPinInbox returns an inbox. post is called on the pinner's thread when there are answers, must not wait, and has a
// goroutine call Answers.
func NewPinInbox(post func()) *PinInbox { return &PinInbox{post: post} }

// Queue returns a queue of a client of a user, whose spaces the goroutine of the inbox owns. It waits for the piece
// that is being pinned.
func (p *Pinner) Queue(user uint64, in *PinInbox) *PinQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.users, func(u *pinUser) bool { return u.id == user })
	if i < 0 {
		i = len(p.users)
		p.users = append(p.users, &pinUser{id: user})
	}
	u := p.users[i]
	q := &PinQueue{p: p, user: u, in: in}
	u.queues = append(u.queues, q)
	return q
}

// Close ends a queue. What is in it is not done.
func (q *PinQueue) Close() {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	u := q.user
	if u.queues = slices.DeleteFunc(u.queues, func(o *PinQueue) bool { return o == q }); len(u.queues) == 0 {
		q.p.users = slices.DeleteFunc(q.p.users, func(o *pinUser) bool { return o == u })
	}
}

var eventOne = [8]byte{1}

func (p *Pinner) ring() { unix.Write(p.bell, eventOne[:]) }

// Add makes a space known that has its memory, before it asks for anything. hints may be nil.
func (q *PinQueue) Add(s *Space, m, hints *Memory, huge bool, fill func(bytes int) error) *PinnedSpace {
	return &PinnedSpace{Space: s, mem: m, hints: hints, queue: q, huge: huge, fill: fill}
}

// Ask queues work on a chunk. The goroutine that owns the space calls it. It reports false if the queue is full.
func (sp *PinnedSpace) Ask(chunk uint64, what PinWork) bool {
	q := sp.queue
	tail := q.tail.Load()
	if tail-q.head.Load() == pinQueueLen {
		return false
	}
	q.ring[tail%pinQueueLen] = pinRequest{of: sp, chunk: chunk, what: what, asked: q.p.now()}
	q.tail.Store(tail + 1)
	if q.p.asleep.CompareAndSwap(true, false) {
		q.p.ring()
	}
	return true
}

// Answers calls f for what the pinner has answered since. The inbox's goroutine calls it.
func (in *PinInbox) Answers(f func(a *PinAnswer)) {
	in.lock.Lock()
	in.answers, in.spare = in.spare[:0], in.answers
	in.posted = false
	in.lock.Unlock()
	for i := range in.spare {
		f(&in.spare[i])
		in.spare[i] = PinAnswer{}
	}
}

// Forget ends a space, so that its memory may be unmapped when it returns, and returns how many bytes of it were
// filled.
func (sp *PinnedSpace) Forget() (filled int) {
	p := sp.queue.p
	p.mu.Lock()
	defer p.mu.Unlock()
	sp.gone = true
	sp.count(-sp.locks.count)
	sp.locks = islands{}
	return sp.filled
}

// run is the thread.
func (p *Pinner) run() {
	runtime.LockOSThread()
	defer close(p.done)
	var b [8]byte
	for !p.ended.Load() {
		if p.turn() {
			continue
		}
		p.asleep.Store(true)
		if p.waits() || p.ended.Load() {
			p.asleep.Store(false)
			continue
		}
		unix.Read(p.bell, b[:])
		p.asleep.Store(false)
	}
}

func (q *PinQueue) empty() bool { return q.head.Load() == q.tail.Load() }

func (p *Pinner) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.users, func(u *pinUser) bool {
		return slices.ContainsFunc(u.queues, func(q *PinQueue) bool { return !q.empty() })
	})
}

// turn does a piece for the client whose turn it is. It reports false if no client waits for one.
func (p *Pinner) turn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.users {
		u := p.users[p.next%len(p.users)]
		p.next = (p.next + 1) % len(p.users)
		for range u.queues {
			q := u.queues[u.next%len(u.queues)]
			u.next = (u.next + 1) % len(u.queues)
			if !q.empty() {
				q.serve()
				return true
			}
		}
	}
	return false
}

// serve does a piece of the first request.
func (q *PinQueue) serve() {
	head := q.head.Load()
	r := &q.ring[head%pinQueueLen]
	began := q.p.now()
	if r.done == 0 {
		r.delay = began - r.asked
	}
	whole, err := r.of.work(r)
	r.took += q.p.now() - began
	if !whole && err == nil {
		return
	}
	a, pin := PinAnswer{Of: r.of, Chunk: r.chunk, Err: err, Delay: r.delay, Took: r.took}, r.what != UnpinChunk
	*r = pinRequest{}
	q.head.Store(head + 1)
	if pin {
		q.in.put(a)
	}
}

func (in *PinInbox) put(a PinAnswer) {
	in.lock.Lock()
	in.answers = append(in.answers, a)
	first := !in.posted
	in.posted = true
	in.lock.Unlock()
	if first {
		in.post()
	}
}

// work does a piece of what is asked for with one chunk. It reports whether that was all.
func (sp *PinnedSpace) work(r *pinRequest) (whole bool, err error) {
	if sp.gone {
		return false, ErrClosed
	}
	off, b := r.chunk*uint64(sp.Space.Chunk()), sp.bytes(r.chunk)
	if r.what == UnpinChunk {
		sp.hint(r.chunk, false)
		if more := sp.locks.more(r.chunk, false); sp.locks.has(r.chunk) == 0 || !sp.may(more) {
			return true, nil
		}
		return true, sp.unlock(r.chunk)
	}
	piece := b[r.done:min(int(r.done)+pinPiece, len(b))]
	if err := sp.pin(r.chunk, off+uint64(r.done), piece, r.what == PinAgain); err != nil {
		_ = sp.unlock(r.chunk)
		return false, err
	}
	if r.done += uint32(len(piece)); int(r.done) < len(b) {
		return false, nil
	}
	if sp.huge {
		unix.Madvise(b, unix.MADV_COLLAPSE) // where the kernel has huge pages to give
		if err := sp.lock(r.chunk, b, true); err != nil {
			return false, err
		}
	}
	sp.hint(r.chunk, true)
	return true, nil
}

// pin fills and locks a piece of a chunk, or fills it only where the chunk becomes a huge page first. again says that
// it has pages: nobody can have punched holes into it since.
func (sp *PinnedSpace) pin(chunk, off uint64, b []byte, again bool) (err error) {
	holes := 0
	if !again {
		holes = sp.holes(off, len(b))
	}
	if holes > 0 {
		if err := sp.fill(holes); err != nil {
			return err
		}
		sp.filled += holes
		done, err := Reserve(holes)
		if err != nil {
			sp.filled -= holes
			return errors.Join(err, sp.fill(-holes))
		}
		defer done()
	}
	if sp.huge {
		unix.Madvise(b, unix.MADV_POPULATE_WRITE)
		return nil
	}
	return sp.lock(chunk, b, off == chunk*uint64(sp.Space.Chunk()))
}

// may reports whether the space may have another island, if it is one more: a user may have as many as he leaves to
// others.
func (sp *PinnedSpace) may(more int) bool {
	p := sp.queue.p
	return more <= 0 || p.most == 0 || sp.queue.user.islands < p.most-p.islands
}

// count counts islands more, or fewer.
func (sp *PinnedSpace) count(more int) {
	sp.queue.user.islands += more
	sp.queue.p.islands += more
}

// lock locks a piece of a chunk, or fills and maps it where locking would make too many mappings. A chunk is locked
// from its first piece on or not at all: gaps would make islands that nobody counts.
func (sp *PinnedSpace) lock(chunk uint64, b []byte, first bool) (err error) {
	if more := sp.locks.more(chunk, true); sp.locks.has(chunk) == 1 || first && sp.may(more) {
		sp.locks.set(chunk, true)
		sp.count(more)
		if err = unix.Mlock(b); err == nil {
			return nil
		}
		_ = sp.unlock(chunk) // also what mlock did before it failed
	}
	if e := unix.Madvise(b, unix.MADV_POPULATE_WRITE); e != nil {
		return pinError(uint64(len(b)), errors.Join(err, e))
	}
	return nil
}

// unlock undoes lock, for all of the chunk.
func (sp *PinnedSpace) unlock(chunk uint64) error {
	more := sp.locks.more(chunk, false)
	sp.locks.set(chunk, false)
	sp.count(more)
	return unix.Munlock(sp.bytes(chunk))
}

// bytes are those of a chunk.
func (sp *PinnedSpace) bytes(chunk uint64) []byte {
	size := uint64(sp.Space.Chunk())
	off := chunk * size
	return sp.mem.buf[off:min(off+size, uint64(len(sp.mem.buf)))]
}

// holes returns how many bytes of a range, pinPiece at most, have no pages yet, not even somebody else's or swapped out
// ones. It uses no call that takes the file's lock, as SEEK_DATA does: a client can hold that lock for as long as
// it likes. Where the kernel does not tell of swapped pages (before Linux 6.5) those count as holes.
func (sp *PinnedSpace) holes(off uint64, n int) (bytes int) {
	there, r, c := 0, unix.CachestatRange{Off: off, Len: uint64(n)}, unix.Cachestat_t{}
	if unix.Cachestat(uint(sp.mem.fd), &r, &c, 0) == nil {
		there = int(c.Cache + c.Evicted)
	} else {
		there = inCore(sp.mem.buf[off : off+uint64(n)])
	}
	return max(0, n-there*pageSize)
}

// hint sets or clears the bit of a chunk.
func (sp *PinnedSpace) hint(chunk uint64, on bool) {
	if sp.hints == nil {
		return
	}
	at, bit := &sp.hints.buf[chunk/8], byte(1)<<(chunk%8)
	if on {
		*at |= bit
	} else {
		*at &^= bit
	}
}

// FixSparse seals memory that was Offered against holes and further mappings for writing, as Fix does, and leaves it
// sparse: nothing is pinned. Its descriptor stays open, for looking where it has pages.
func (m *Memory) FixSparse() error {
	if m.buf == nil {
		return ErrClosed
	}
	if _, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, holeSeals|sealSeals); err != nil {
		return fmt.Errorf("%w: it cannot be sealed against holes: %w", ErrSeals, err)
	}
	return nil
}
