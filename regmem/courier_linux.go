package regmem

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Courier is the thread that makes the trips of one Carrier, in order: an OS thread of its own, since reading and
// writing another process's memory takes as long as the kernel, or that process, likes. Other couriers do not wait for
// it, nor does anybody else.
type Courier struct {
	fd     int // /proc/PID/mem of the process
	bell   int // eventfd that it sleeps on
	post   func()
	asleep atomic.Bool
	ended  atomic.Bool
	done   chan struct{}

	ring       [tripQueue]*Trip
	head, tail atomic.Uint32

	lock    sync.Mutex
	answers []*Trip
	spare   []*Trip // the owner's
	posted  bool
}

// NewCourier starts one for the process whose memory fd is, which is the courier's from then on. post is called on its
// thread when trips are over, must not wait, and has the carrier's owner call Over.
func NewCourier(fd int, post func()) (*Courier, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("regmem: courier: eventfd: %w", err)
	}
	q := &Courier{fd: fd, bell: bell, post: post, done: make(chan struct{})}
	go q.run()
	return q, nil
}

// Send has a trip made. The carrier's owner calls it. It reports false if too many wait.
func (q *Courier) Send(t *Trip) bool {
	tail := q.tail.Load()
	if tail-q.head.Load() == tripQueue {
		return false
	}
	q.ring[tail%tripQueue] = t
	q.tail.Store(tail + 1)
	if q.asleep.CompareAndSwap(true, false) {
		q.wake()
	}
	return true
}

func (q *Courier) wake() { unix.Write(q.bell, eventOne[:]) }

// Over calls f for the trips that are over since, in their order. The carrier's owner calls it.
func (q *Courier) Over(f func(*Trip)) {
	q.lock.Lock()
	q.answers, q.spare = q.spare[:0], q.answers
	q.posted = false
	q.lock.Unlock()
	for i, t := range q.spare {
		q.spare[i] = nil
		f(t)
	}
}

// End has the courier end after the trip that it makes now. Nobody sends any more. Done is closed when it has.
func (q *Courier) End() {
	q.lock.Lock() // the bell is not closed meanwhile
	defer q.lock.Unlock()
	q.ended.Store(true)
	q.wake()
}

// Done is closed when the courier has ended: it reads and writes nothing any more.
func (q *Courier) Done() <-chan struct{} { return q.done }

// run is the thread.
func (q *Courier) run() {
	runtime.LockOSThread()                                                // the thread ends with it
	os.WriteFile("/proc/thread-self/comm", []byte("edge-courier"), 0o600) // for people
	defer close(q.done)
	defer q.close()
	var b [8]byte
	for !q.ended.Load() {
		if head := q.head.Load(); head != q.tail.Load() {
			t := q.ring[head%tripQueue]
			q.ring[head%tripQueue] = nil
			q.head.Store(head + 1)
			t.Err = carry(q.fd, t)
			q.answer(t)
			continue
		}
		q.asleep.Store(true)
		if q.head.Load() != q.tail.Load() || q.ended.Load() {
			q.asleep.Store(false)
			continue
		}
		unix.Read(q.bell, b[:])
		q.asleep.Store(false)
	}
}

func (q *Courier) close() {
	q.lock.Lock()
	defer q.lock.Unlock()
	unix.Close(q.bell)
	unix.Close(q.fd)
}

func (q *Courier) answer(t *Trip) {
	q.lock.Lock()
	q.answers = append(q.answers, t)
	first := !q.posted
	q.posted = true
	q.lock.Unlock()
	if first {
		q.post()
	}
}

// carry moves the bytes of a trip.
func carry(fd int, t *Trip) error {
	for b, at := t.Data, t.At; len(b) > 0; {
		n, err := 0, error(nil)
		if t.Puts {
			n, err = unix.Pwrite(fd, b, int64(at))
		} else {
			n, err = unix.Pread(fd, b, int64(at))
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("regmem: memory of the process at %#x: %w", at, err)
		case n == 0: // the process has ended, or runs another program
			return fmt.Errorf("regmem: memory of the process: %w", io.EOF)
		default:
			b, at = b[n:], at+uint64(n)
		}
	}
	return nil
}

// CheckProcess reports why fd is not the memory of process pid, open for reading and writing. Nothing is read or
// written: a file of another kind could block, or do what its owner may not but who writes may.
//
// The file is compared with what this process finds under the number of the other. Names prove nothing, since a file of
// procfs can be mounted under another name. A number that another process has got meanwhile is no danger: whoever has
// its memory open was allowed to open it.
func CheckProcess(fd int, pid int32) error {
	var fs unix.Statfs_t
	var got, want unix.Stat_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("%w: %w", ErrProcess, err)
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("%w: it is no file of /proc", ErrProcess)
	}
	if err := unix.Fstat(fd, &got); err != nil {
		return fmt.Errorf("%w: %w", ErrProcess, err)
	}
	name := fmt.Sprintf("/proc/%d/mem", pid)
	if err := unix.Stat(name, &want); err != nil {
		return fmt.Errorf("%w: this process cannot look at %s, %w: both need to see the same /proc", ErrProcess, name,
			err)
	}
	if got.Dev != want.Dev || got.Ino != want.Ino || got.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%w: it is another file than %s here: it must be the process's own, and both need to see "+
			"the same /proc", ErrProcess, name)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_PATH != 0 {
		return fmt.Errorf("%w: it is not open for reading and writing", ErrProcess)
	}
	return nil
}

// distant is addresses that nobody may use, for memory of other processes: it has a length, but no bytes here. It is
// of an empty file: a courier of an embedded transport, which the protection of pages does not stop, finds nothing.
var distant aside

// aside is addresses that are set aside once. Where that fails, for want of a descriptor perhaps, the next may succeed.
type aside struct {
	mu  sync.Mutex
	all []byte
}

func (a *aside) get(set func() ([]byte, error)) (_ []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all, err = set()
	}
	return a.all, err
}

func setAside() ([]byte, error) {
	fd, err := unix.MemfdCreate("edge-distant", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals|unix.F_SEAL_SEAL); err != nil {
		return nil, err
	}
	// A process has 2^47 addresses, and Go begins its heap at a random one: in one process of a hundred that leaves no
	// piece of MaxHeap, but one of a little less.
	for n := MaxHeap; ; n -= asideStep {
		all, err := unix.Mmap(fd, 0, n, unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		if err == nil || n <= MaxHeap/2 {
			return all, err
		}
	}
}

// asideStep is by how many bytes less is set aside where there is no room for more.
const asideStep = 1 << 40

// SetAside sets the addresses of Distant aside: in a process with large spaces there may be none left in one piece
// later. Where it fails, Distant tries again.
func SetAside() error {
	_, err := distant.get(setAside)
	return err
}

// Distant returns memory of n bytes that has no bytes in this process: using them is a fault. Only its length counts.
func Distant(n uint64) (*Memory, error) {
	all, err := distant.get(setAside)
	if err != nil {
		return nil, fmt.Errorf("%w: this process cannot set aside addresses for memory of others: %w", ErrSize, err)
	}
	if n > uint64(len(all)) {
		return nil, fmt.Errorf("%w: %d bytes of another process; at most %d", ErrSize, n, len(all))
	}
	return Wrap(all[:n]), nil
}
