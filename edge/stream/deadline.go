package stream

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/edge"
	"multiedge/internal/mono"
)

// deadline ends the calls on one half of a stream. It costs a timer, made once, and no goroutine.
type deadline struct {
	expired atomic.Bool

	mu    sync.Mutex
	at    mono.Time // zero: none
	timer *time.Timer
	over  bool // the stream is closed
}

// farOff is as far as a deadline can be: some 36 years, which mono.Time can add.
const farOff = time.Duration(1) << 60

// setDeadline changes the deadline of a half; the zero time is none.
func (h *half) setDeadline(t time.Time) {
	l := &h.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halt()
	l.expired.Store(false)
	if t.IsZero() || l.over {
		return
	}
	left := min(time.Until(t), farOff)
	if left <= 0 {
		l.expired.Store(true)
		h.cond.Interrupt()
		return
	}
	l.at = mono.Now().Add(left)
	if l.timer == nil {
		l.timer = time.AfterFunc(left, h.expire)
	} else {
		l.timer.Reset(left)
	}
}

// expire runs when the timer does, perhaps for a deadline that was changed since.
func (h *half) expire() {
	l := &h.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at != 0 && mono.Now() >= l.at {
		l.expired.Store(true)
		h.cond.Interrupt()
	}
}

func (l *deadline) halt() {
	l.at = 0
	if l.timer != nil {
		l.timer.Stop()
	}
}

// stop ends the deadline for good.
func (l *deadline) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halt()
	l.over = true
}

// SetDeadline implements net.Conn: calls on the stream that are under way at t, or made later, fail with
// os.ErrDeadlineExceeded. The zero time is no deadline. The stream lives on, and with a later deadline it is used
// again. A Write that failed says how much of it was written.
func (s *Conn) SetDeadline(t time.Time) error {
	return s.setDeadlines(t, &s.in.half, &s.out.half)
}

// SetReadDeadline implements net.Conn.
func (s *Conn) SetReadDeadline(t time.Time) error { return s.setDeadlines(t, &s.in.half) }

// SetWriteDeadline implements net.Conn.
func (s *Conn) SetWriteDeadline(t time.Time) error { return s.setDeadlines(t, &s.out.half) }

func (s *Conn) setDeadlines(t time.Time, halves ...*half) error {
	for _, h := range halves {
		if s.closed.Load() {
			return s.opError("set", net.ErrClosed)
		}
		h.setDeadline(t)
	}
	return nil
}

// silentError is a deadline that passed while the daemon did not run. It is a timeout to net.Error.
type silentError struct{}

func (silentError) Error() string   { return edge.ErrDaemonSilent.Error() + ": deadline exceeded" }
func (silentError) Timeout() bool   { return true }
func (silentError) Temporary() bool { return true }
func (silentError) Unwrap() []error { return []error{edge.ErrDaemonSilent, os.ErrDeadlineExceeded} }
