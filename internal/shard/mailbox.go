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
type mailbox struct {
	count  atomic.Int32 // functions queued; read by the shard in every iteration
	asleep atomic.Bool  // the shard is about to block or blocks
	wakeFD int          // eventfd the shard polls

	mu     sync.Mutex
	jobs   []func(mono.Time)
	spare  []func(mono.Time) // owned by the shard: storage to swap in
	closed bool
	wakes  uint64 // system calls that woke the shard
}

func newMailbox() (*mailbox, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("mailbox: eventfd: %w", err)
	}
	return &mailbox{wakeFD: fd}, nil
}

// post queues f to run on the shard, which will pass it the time of the iteration. It does not wait.
func (m *mailbox) post(f func(mono.Time)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrStopped
	}
	m.jobs = append(m.jobs, f)
	m.count.Add(1)
	m.wakeLocked()
	return nil
}

// do runs f on the shard and returns when it has ended.
func (m *mailbox) do(f func(mono.Time)) error {
	done := make(chan struct{})
	if err := m.post(func(now mono.Time) { defer close(done); f(now) }); err != nil {
		return err
	}
	<-done
	return nil
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

// run is called by the shard. It reports whether anything was queued.
func (m *mailbox) run(now mono.Time) bool {
	if m.count.Load() == 0 {
		return false
	}
	m.mu.Lock()
	jobs := m.jobs
	m.jobs = m.spare[:0]
	m.mu.Unlock()
	m.count.Add(-int32(len(jobs)))
	for i, f := range jobs {
		f(now)
		jobs[i] = nil
	}
	m.spare = jobs
	return len(jobs) > 0
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
	m.run(now)
	unix.Close(m.wakeFD)
}
