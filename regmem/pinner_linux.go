package regmem

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Pinner is the thread that fills, locks and unlocks chunks of spaces, one for a process: an OS thread of its own,
// since the calls block for as long as the kernel takes. Those who ask have a queue each, which is bounded; it takes
// turns between them.
type Pinner struct {
	bell   int // eventfd that it sleeps on
	now    func() time.Duration
	asleep atomic.Bool
	ended  atomic.Bool
	done   chan struct{}

	mu     sync.Mutex // held while it works; guards what follows
	queues []*PinQueue
}

// pinQueueLen is how many requests of one queue may wait; a power of two.
const pinQueueLen = 1024

// PinQueue is what one goroutine asks of the pinner, in order, and the answers.
type PinQueue struct {
	p          *Pinner
	post       func() // has the owner call Answers
	ring       [pinQueueLen]pinRequest
	head, tail atomic.Uint32

	lock    sync.Mutex
	answers []PinAnswer
	spare   []PinAnswer // the owner's
	posted  bool
}

type pinRequest struct {
	of    *PinnedSpace
	chunk uint64
	what  PinWork
}

// PinAnswer says what became of a chunk that was to be pinned.
type PinAnswer struct {
	Of    *PinnedSpace
	Chunk uint64
	Err   error
	Took  time.Duration // by the pinner
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
	// bytes that were filled; the owner of the charge reads it after Forget
	filled int
}

// NewPinner starts a pinner, which tells how long its work takes by a clock that any goroutine may read.
func NewPinner(now func() time.Duration) (*Pinner, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("regmem: pinner: eventfd: %w", err)
	}
	p := &Pinner{bell: fd, now: now, done: make(chan struct{})}
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

// Queue returns a queue of one goroutine's. post is called on the pinner's thread when there are answers, must not
// wait, and has that goroutine call Answers.
func (p *Pinner) Queue(post func()) *PinQueue {
	q := &PinQueue{p: p, post: post}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues = append(p.queues, q)
	return q
}

var eventOne = [8]byte{1}

func (p *Pinner) ring() { unix.Write(p.bell, eventOne[:]) }

// Add makes a space known that has its memory, before it asks for anything. hints may be nil.
func (q *PinQueue) Add(s *Space, m, hints *Memory, huge bool, fill func(bytes int) error) *PinnedSpace {
	return &PinnedSpace{Space: s, mem: m, hints: hints, queue: q, huge: huge, fill: fill}
}

// Ask queues work on a chunk. The queue's owner calls it. It reports false if the queue is full.
func (sp *PinnedSpace) Ask(chunk uint64, what PinWork) bool {
	q := sp.queue
	tail := q.tail.Load()
	if tail-q.head.Load() == pinQueueLen {
		return false
	}
	q.ring[tail%pinQueueLen] = pinRequest{sp, chunk, what}
	q.tail.Store(tail + 1)
	if q.p.asleep.CompareAndSwap(true, false) {
		q.p.ring()
	}
	return true
}

// Answers calls f for what the pinner has answered since. The queue's owner calls it.
func (q *PinQueue) Answers(f func(a *PinAnswer)) {
	q.lock.Lock()
	q.answers, q.spare = q.spare[:0], q.answers
	q.posted = false
	q.lock.Unlock()
	for i := range q.spare {
		f(&q.spare[i])
		q.spare[i] = PinAnswer{}
	}
}

// Forget ends a space, so that its memory may be unmapped when it returns, and returns how many bytes of it were
// filled.
func (p *Pinner) Forget(sp *PinnedSpace) (filled int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sp.gone = true
	return sp.filled
}

// run is the thread.
func (p *Pinner) run() {
	runtime.LockOSThread()
	defer close(p.done)
	var b [8]byte
	for !p.ended.Load() {
		if p.round() {
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

func (p *Pinner) all() []*PinQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues
}

func (p *Pinner) waits() bool {
	for _, q := range p.all() {
		if q.head.Load() != q.tail.Load() {
			return true
		}
	}
	return false
}

// round serves one request of each queue.
func (p *Pinner) round() (worked bool) {
	for _, q := range p.all() {
		head := q.head.Load()
		if head == q.tail.Load() {
			continue
		}
		worked = true
		r := q.ring[head%pinQueueLen]
		q.ring[head%pinQueueLen] = pinRequest{}
		q.head.Store(head + 1)
		began := p.now()
		p.mu.Lock()
		err := r.of.work(r.chunk, r.what)
		p.mu.Unlock()
		if r.what == PinChunk {
			q.answer(PinAnswer{Of: r.of, Chunk: r.chunk, Err: err, Took: p.now() - began})
		}
	}
	return worked
}

func (q *PinQueue) answer(a PinAnswer) {
	q.lock.Lock()
	q.answers = append(q.answers, a)
	first := !q.posted
	q.posted = true
	q.lock.Unlock()
	if first {
		q.post()
	}
}

// work does what is asked for with one chunk.
func (sp *PinnedSpace) work(chunk uint64, what PinWork) error {
	if sp.gone {
		return ErrClosed
	}
	size := uint64(sp.Space.Chunk())
	off := chunk * size
	b := sp.mem.buf[off:min(off+size, uint64(len(sp.mem.buf)))]
	if what == UnpinChunk {
		sp.hint(chunk, false)
		return unix.Munlock(b)
	}
	holes, err := sp.holes(off, len(b))
	if err != nil {
		return err
	}
	done := func() {}
	if holes > 0 {
		if err := sp.fill(holes); err != nil {
			return err
		}
		sp.filled += holes
		if done, err = Reserve(holes); err != nil {
			sp.filled -= holes
			return errors.Join(err, sp.fill(-holes))
		}
	}
	defer done()
	if sp.huge {
		unix.Madvise(b, unix.MADV_POPULATE_WRITE)
		unix.Madvise(b, unix.MADV_COLLAPSE) // where the kernel has huge pages to give
	}
	if err := sp.lock(b); err != nil {
		return err
	}
	sp.hint(chunk, true)
	return nil
}

// lock locks a chunk. Locked pieces that do not touch are mappings of their own, of which the kernel allows a process
// so many (vm.max_map_count): beyond them chunks are filled and mapped, but not locked.
func (sp *PinnedSpace) lock(b []byte) error {
	err := unix.Mlock(b)
	if err == nil {
		return nil
	}
	if e := unix.Madvise(b, unix.MADV_POPULATE_WRITE); e != nil {
		return pinError(uint64(len(b)), errors.Join(err, e))
	}
	return nil
}

// holes returns how many bytes of a range have no pages yet, not even somebody else's.
func (sp *PinnedSpace) holes(off uint64, n int) (bytes int, err error) {
	at, end := int64(off), int64(off)+int64(n)
	for at < end {
		data, err := unix.Seek(sp.mem.fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return bytes + int(end-at), nil // none behind
		}
		if err != nil {
			return 0, fmt.Errorf("regmem: looking for holes: %w", err)
		}
		bytes += int(min(data, end) - at)
		if data >= end {
			return bytes, nil
		}
		if at, err = unix.Seek(sp.mem.fd, data, unix.SEEK_HOLE); err != nil {
			return 0, fmt.Errorf("regmem: looking for holes: %w", err)
		}
	}
	return bytes, nil
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
