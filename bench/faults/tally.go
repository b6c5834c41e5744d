package faults

import (
	"sync"
	"time"

	"multiedge/bench/report"
)

// tally counts what the movers of a client do. All methods may be called from any goroutine.
type tally struct {
	mu        sync.Mutex
	w         Window
	since     time.Time
	progress  time.Time // the last completion, or the moment work began
	working   int       // operations in flight
	up        int       // connections
	posted    uint64
	completed uint64
	latency   *report.Recorder
}

func newTally() *tally {
	now := time.Now()
	return &tally{since: now, progress: now, latency: report.NewRecorder()}
}

func (t *tally) begins() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.working == 0 {
		t.progress = time.Now()
	}
	t.working++
	t.posted++
}

// ends counts an operation that has ended: its duration, its bytes, and whether it was in time.
func (t *tally) ends(took time.Duration, bytes int, err error, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
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
