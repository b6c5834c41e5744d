package faults

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"multiedge/bench/report"
	"multiedge/edge"
)

// tally counts what the movers of a client do. All methods may be called from any goroutine.
type tally struct {
	mu        sync.Mutex
	w         Window
	since     time.Time
	progress  time.Time            // the last completion, or the moment work began
	working   int                  // operations in flight
	started   map[uint64]time.Time // of them, by what begins returned
	up        int                  // connections
	posted    uint64
	completed uint64
	latency   *report.Recorder
}

func newTally() *tally {
	now := time.Now()
	return &tally{since: now, progress: now, started: map[uint64]time.Time{}, latency: report.NewRecorder()}
}

// begins counts an operation that was posted at a time, and returns its number.
func (t *tally) begins(at time.Time) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.working == 0 {
		t.progress = time.Now()
	}
	t.working++
	t.posted++
	t.started[t.posted] = at
	return t.posted
}

// ends counts an operation that has ended: its number, its bytes, and whether it was in time.
func (t *tally) ends(number uint64, bytes int, err error, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, start := time.Now(), t.started[number]
	delete(t.started, number)
	took := now.Sub(start)
	t.completed++
	t.working--
	if late {
		t.w.Late++
	}
	if err != nil {
		t.failed(now, err)
		return
	}
	t.w.Stall = max(t.w.Stall, now.Sub(t.progress))
	t.progress = now
	t.w.Ops++
	t.w.Bytes += uint64(bytes)
	t.latency.Record(took)
	t.w.Worst = max(t.w.Worst, now.Sub(t.in(start)))
}

// in is when an operation that began at a time was under way in the window first: what kept it before that is no matter
// of the window's.
func (t *tally) in(start time.Time) time.Time {
	if start.Before(t.since) {
		return t.since
	}
	return start
}

func (t *tally) failed(now time.Time, err error) {
	name, ok := typeOf(err)
	if !ok && len(t.w.Untyped) < maxDetails {
		t.w.Untyped = append(t.w.Untyped, err.Error())
	}
	if t.w.Errors == nil {
		t.w.Errors = map[string]uint64{}
	}
	t.w.Errors[name]++
	if t.w.FirstError.IsZero() {
		t.w.FirstError = now
	}
	t.w.LastError = now
}

// wrong records something that must never happen.
func (t *tally) wrong(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.w.Wrong) < maxDetails {
		t.w.Wrong = append(t.w.Wrong, what)
	}
}

func (t *tally) dialled(again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if again {
		t.w.Reconnects++
	}
	t.up++
}

// down counts a connection that has ended.
func (t *tally) down() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up--
}

func (t *tally) dialFailed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.w.DialErrors == nil {
		t.w.DialErrors = map[string]uint64{}
	}
	name, _ := typeOf(err)
	t.w.DialErrors[name]++
}

// mark returns what was counted since the last mark.
func (t *tally) mark(name string) *Window {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	w := t.w
	if t.working > 0 {
		w.Stall = max(w.Stall, now.Sub(t.progress))
	}
	for _, start := range t.started {
		w.Worst = max(w.Worst, now.Sub(t.in(start)))
	}
	l := t.latency.Summary(1)
	w.Name, w.Seconds, w.P50, w.P99, w.Posted, w.Completed, w.Up = name, now.Sub(t.since).Seconds(), l.P50, l.P99,
		t.posted, t.completed, t.up
	t.w, t.since, t.progress = Window{}, now, now
	t.latency.Reset()
	return &w
}

// failedClose counts a connection that could not be closed in good order, as an operation that failed.
func (t *tally) failedClose(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed(time.Now(), err)
}

// types names the errors of package edge that a program can tell apart.
var types = []struct {
	err  error
	name string
}{
	{edge.ErrDaemonDown, "daemon-down"}, {edge.ErrNoDaemon, "no-daemon"}, {edge.ErrPeerDown, "peer-down"},
	{edge.ErrPeerClosed, "peer-closed"}, {edge.ErrReset, "reset"},
	{edge.ErrPeerUnknown, "peer-unknown"}, {edge.ErrStranger, "stranger"}, {edge.ErrNoService, "no-service"},
	{edge.ErrRefused, "refused"}, {edge.ErrTimeout, "timeout"},
	{edge.ErrMTU, "mtu"}, {edge.ErrVersion, "version"}, {edge.ErrRevoked, "key"}, {edge.ErrKey, "key"},
	{edge.ErrPermission, "permission"},
	{edge.ErrBounds, "bounds"}, {edge.ErrAborted, "aborted"}, {edge.ErrLimit, "limit"}, {edge.ErrMemlock, "memlock"},
	{edge.ErrDenied, "denied"}, {edge.ErrMemory, "memory"}, {edge.ErrTooLong, "too-long"},
	{edge.ErrNoBuffer, "no-buffer"},
	{edge.ErrBusy, "busy"}, {edge.ErrExists, "exists"}, {net.ErrClosed, "closed"}, {context.DeadlineExceeded,
		"deadline"},
	{context.Canceled, "cancelled"},
}

// typeOf names an error's type: "" for success, ok false for an error that a program cannot tell from others.
func typeOf(err error) (name string, ok bool) {
	if err == nil {
		return "", true
	}
	for _, t := range types {
		if errors.Is(err, t.err) {
			return t.name, true
		}
	}
	return "untyped", false
}
