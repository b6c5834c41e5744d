package shard

import (
	"fmt"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// ErrStopped is returned to those who ask a shard that has ended.
var ErrStopped = ipc.Errorf(ipc.CodeDraining, "the daemon is stopping")

// mailbox carries functions from other goroutines to the shard. Posting wakes the shard if it sleeps.
//
// There are two kinds. Jobs are the daemon's own: an iteration runs all that are queued. Pieces are what clients'
// requests cost the shard: an iteration runs one, of the users in turn. So requests lengthen an iteration, for which
// all clients wait, by one piece, however many users and clients make them.
type mailbox struct {
	count  atomic.Int32 // functions queued; read by the shard in every iteration
	asleep atomic.Bool  // the shard is about to block or blocks
	wakeFD int          // eventfd the shard polls

	mu     sync.Mutex
	jobs   []func(mono.Time)
	spare  []func(mono.Time) // owned by the shard: storage to swap in
	pieces turns
	closed bool
	wakes  uint64 // system calls that woke the shard
}

// turns are pieces of requests that wait, by user, in order of coming. A client has a few at a time, and all
// connections of a user that end have one together.
type turns struct {
	users []*userPieces // that have some, the next one first
	of    map[*User]*userPieces
}

type userPieces struct {
	user *User
	wait []func(mono.Time)
}

func (t *turns) add(u *User, f func(mono.Time)) {
	q := t.of[u]
	if q == nil {
		if q = (&userPieces{user: u}); t.of == nil {
			t.of = map[*User]*userPieces{}
		}
		t.of[u] = q
		t.users = append(t.users, q)
	}
	q.wait = append(q.wait, f)
}

// next takes a piece of the user whose turn it is, nil if nobody has any.
func (t *turns) next() (f func(mono.Time)) {
	if len(t.users) == 0 {
		return nil
	}
	q := t.users[0]
	copy(t.users, t.users[1:])
	f, q.wait[0] = q.wait[0], nil
	if q.wait = q.wait[1:]; len(q.wait) > 0 {
		t.users[len(t.users)-1] = q
		return f
	}
	delete(t.of, q.user)
	t.users[len(t.users)-1] = nil
	t.users = t.users[:len(t.users)-1]
	return f
}

func newMailbox() (*mailbox, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("mailbox: eventfd: %w", err)
	}
	return &mailbox{wakeFD: fd}, nil
}

// post queues f, a job of the daemon's own, to run on the shard, which will pass it the time of the iteration. It does
// not wait.
func (m *mailbox) post(f func(mono.Time)) error { return m.queue(nil, f) }

// queue queues a piece of a user's, or a job if there is no user.
func (m *mailbox) queue(u *User, f func(mono.Time)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrStopped
	}
	if u == nil {
		m.jobs = append(m.jobs, f)
	} else {
		m.pieces.add(u, f)
	}
	m.count.Add(1)
	m.wakeLocked()
	return nil
}

// do runs f, a job of the daemon's own, on the shard and returns when it has ended.
func (m *mailbox) do(f func(mono.Time)) error { return m.doFor(nil, f) }

// doFor is do for a piece of what a client of a user asks for. It should last no longer than a few frames do.
func (m *mailbox) doFor(u *User, f func(mono.Time)) error {
	done, err := m.begin(u, f)
	if err == nil {
		<-done
	}
	return err
}

// begin is doFor that does not wait: done is closed when f has ended.
func (m *mailbox) begin(u *User, f func(mono.Time)) (done chan struct{}, err error) {
	done = make(chan struct{})
	return done, m.queue(u, func(now mono.Time) { defer close(done); f(now) })
}

// wake makes a sleeping shard go round once.
func (m *mailbox) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.wakeLocked()
	}
}

var eventOne = [8]byte{1}

func (m *mailbox) wakeLocked() {
	if m.asleep.CompareAndSwap(true, false) {
		m.wakes++
		unix.Write(m.wakeFD, eventOne[:])
	}
}

// woken is how often the shard was woken.
func (m *mailbox) woken() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wakes
}

// run is called by the shard, once in an iteration. It reports whether anything was queued.
func (m *mailbox) run(now mono.Time) bool {
	if m.count.Load() == 0 {
		return false
	}
	m.mu.Lock()
	jobs := m.jobs
	m.jobs = m.spare[:0]
	piece := m.pieces.next()
	m.mu.Unlock()
	n := len(jobs)
	if piece != nil {
		n++
	}
	m.count.Add(-int32(n))
	for i, f := range jobs {
		f(now)
		jobs[i] = nil
	}
	m.spare = jobs
	if piece != nil {
		piece(now)
	}
	return n > 0
}

// clear takes the wake-up that ended a sleep.
func (m *mailbox) clear() {
	var b [8]byte
	unix.Read(m.wakeFD, b[:])
}

// close refuses further posts, runs what was queued, and closes the descriptor. The shard runs nothing posted
// afterwards.
func (m *mailbox) close(now mono.Time) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for m.run(now) {
	}
	unix.Close(m.wakeFD)
}
