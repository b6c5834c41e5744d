package faults

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"multiedge/edge"
)

func TestThresholds(t *testing.T) {
	for _, c := range []struct{ p, floor, frames float64 }{{0.001, 0.9, 1.3 / 0.999}, {0.01, 0.7, 1.3 / 0.99},
		{0.05, 0.4, 1.3 / 0.95}, {0.3, 0, 1.3 / 0.7}} {
		if lossFloor(c.p) != c.floor || math.Abs(framesMost(c.p)-c.frames) > 1e-12 {
			t.Errorf("loss %v: goodput %v, frames %v", c.p, lossFloor(c.p), framesMost(c.p))
		}
	}
	if got := stallMost(time.Millisecond, 5*time.Millisecond); got != 200*time.Millisecond {
		t.Errorf("stall on a fast path: %v", got)
	}
	if got := stallMost(50*time.Millisecond, 5*time.Millisecond); got != 315*time.Millisecond {
		t.Errorf("stall on a slow path: %v", got)
	}
	if survivors(2) != 0.45 || math.Abs(survivors(4)-0.675) > 1e-12 {
		t.Errorf("survivors: %v, %v", survivors(2), survivors(4))
	}
}

func TestSlope(t *testing.T) {
	x := []float64{0, 1, 2, 3}
	for _, c := range []struct {
		y               []float64
		want, deviation float64
	}{{[]float64{5, 5, 5, 5}, 0, 0}, {[]float64{1, 3, 5, 7}, 2, 0}, {[]float64{4, 3, 2, 1}, -1, 0},
		{[]float64{0, 1, 1, 0}, 0, math.Sqrt(0.1)}} {
		if got, dev := slope(x, c.y); math.Abs(got-c.want) > 1e-12 || math.Abs(dev-c.deviation) > 1e-12 {
			t.Errorf("%v: %v, %v", c.y, got, dev)
		}
	}
	for _, none := range [][]float64{{1, 2}, {2, 2, 2}} {
		if got, dev := slope(none, none); got != 0 || dev != 0 {
			t.Errorf("the slope of what has none: %v, %v", got, dev)
		}
	}
}

func TestCounters(t *testing.T) {
	d := less(map[string]uint64{"a": 7, "b": 3, "new": 1}, map[string]uint64{"a": 5, "b": 9})
	if d["a"] != 2 || d["b"] != 3 || d["new"] != 1 {
		t.Errorf("%v", d) // b went backwards: its daemon was started again
	}
	c := map[string]uint64{"rejected_malformed": 1, "rejected_header_sum": 2, "rejected_later": 4,
		"rejected_no_room": 8, "frames_lost": 16}
	if got := rejected(c); got != 7 {
		t.Errorf("rejected: %d", got)
	}
}

func TestTypeOf(t *testing.T) {
	for err, want := range map[error]string{
		edge.ErrPeerDown: "peer-down", edge.ErrRevoked: "key", fmt.Errorf("around: %w",
			edge.ErrDaemonDown): "daemon-down", edge.ErrAborted: "aborted", net.ErrClosed: "closed",
	} {
		if got, ok := typeOf(err); got != want || !ok {
			t.Errorf("%v: %q", err, got)
		}
	}
	if got, ok := typeOf(errors.New("something")); ok {
		t.Errorf("an error of no type is %q", got)
	}
	if got, ok := typeOf(nil); got != "" || !ok {
		t.Errorf("nil is %q", got)
	}
}

func TestRowVerdict(t *testing.T) {
	trial := func() *Trial { return &Trial{row: newRow(&Scenario{Name: "x"})} }
	for _, c := range []struct {
		name  string
		do    func(t *Trial)
		want  string
		marks string
	}{
		{"nothing wrong", func(t *Trial) { t.injected("lost", 3); t.some(); t.check("x", true, "") }, Pass, "12345"},
		{"nothing compared", func(t *Trial) { t.injected("lost", 3); t.some(); t.proven() }, Fail, "x2345"},
		{"only memory compared that nobody wrote",
			func(t *Trial) { t.compared(&Checked{Bytes: 9, Void: true}); t.proven() }, Fail, "x2345"},
		{"something compared", func(t *Trial) { t.compared(&Checked{Bytes: 9}); t.proven() }, Pass, "12345"},
		{"what was made to be tried was not", func(t *Trial) { t.tried("seals", 0) }, Fail, "123x5"},
		{"nothing injected", func(t *Trial) { t.some() }, Fail, "123x5"},
		{"counters disagree", func(t *Trial) { t.agrees("dup", 10, 20, 9) }, Fail, "123x5"},
		{"counters agree within the slack", func(t *Trial) { t.agrees("dup", 11, 20, 9) }, Pass, "12345"},
		{"own criterion", func(t *Trial) { t.check("x", false, "why") }, Fail, "12345"},
		{"speed in full", func(t *Trial) { t.speed("x", false, "slow") }, Fail, "12345"},
		{"speed in short", func(t *Trial) { t.short = true; t.speed("x", false, "slow") }, Pass, "12345"},
		{"operation failed", func(t *Trial) { t.unfailed(&Window{Errors: map[string]uint64{"peer-down": 1}}) }, Fail,
			"12345"},
		{"reconnected", func(t *Trial) { t.unfailed(&Window{Reconnects: 1}) }, Fail, "12345"},
		{"late operation", func(t *Trial) { t.judge(&agent{}, &Window{Late: 1}) }, Fail, "1x345"},
		{"untyped error", func(t *Trial) { t.judge(&agent{}, &Window{Untyped: []string{"?"}}) }, Fail, "1x345"},
		{"wrong read", func(t *Trial) { t.judge(&agent{}, &Window{Wrong: []string{"?"}}) }, Fail, "x2345"},
		{"wrong memory", func(t *Trial) { t.compared(&Checked{Wrong: 1}) }, Fail, "x2345"},
		{"landed late", func(t *Trial) { t.compared(&Checked{Late: true}) }, Fail, "1x345"},
		{"notification lost", func(t *Trial) { t.compared(&Checked{Notes: 1}) }, Fail, "1x345"},
		{"could not be carried out", func(t *Trial) { t.row.Error = "no" }, Fail, "12345"},
	} {
		tr := trial()
		c.do(tr)
		tr.row.close()
		if tr.row.Verdict != c.want || tr.row.marks() != c.marks {
			t.Errorf("%s: %s %s, want %s %s", c.name, tr.row.Verdict, tr.row.marks(), c.want, c.marks)
		}
		if (tr.row.Verdict == Fail) != (len(tr.row.Reasons()) > 0) {
			t.Errorf("%s: reasons %v", c.name, tr.row.Reasons())
		}
	}
}

// Only what a hypervisor may have caused is tried again.
func TestDisturbed(t *testing.T) {
	slow := func(t *Trial) { t.speed("x", false, "slow") }
	for _, c := range []struct {
		name   string
		stolen float64
		do     func(t *Trial)
		want   bool
	}{
		{"slow", 0.06, slow, true},
		{"slow on a machine of its own", 0.05, slow, false},
		{"not slow", 0.5, func(t *Trial) { t.speed("x", true, ""); t.check("y", true, "") }, false},
		{"slow, and wrong", 0.5, func(t *Trial) { slow(t); t.check("y", false, "why") }, false},
		{"slow, and an operation late", 0.5, func(t *Trial) { slow(t); t.judge(&agent{}, &Window{Late: 1}) }, false},
		{"not carried out", 0.5, func(t *Trial) { t.row.Error = "no" }, false},
	} {
		tr := &Trial{row: newRow(&Scenario{Name: "x"})}
		c.do(tr)
		tr.row.Stolen = c.stolen
		if tr.row.close(); tr.row.disturbed() != c.want {
			t.Errorf("%s: disturbed %v", c.name, !c.want)
		}
	}
}

func TestHeld(t *testing.T) {
	was := held{Regions: 1, Rest: Rest{Goroutines: 15, Descriptors: 20}}
	if more := was.exceeds(was); len(more) != 0 {
		t.Errorf("the same exceeds itself: %v", more)
	}
	now := was
	now.Pinned, now.Goroutines, now.Regions = 4096, 16, 0
	if more := strings.Join(now.exceeds(was),
		"; "); more != "4096 pinned bytes, 0 at the start; 16 goroutines, 15 at the start" {
		t.Errorf("%s", more)
	}
}

func TestPanics(t *testing.T) {
	for words, want := range map[string]string{
		"":                                     "",
		"level=INFO msg=\"peer up\"":           "",
		"x\npanic: runtime error\ngoroutine 1": "panic: runtime error\ngoroutine 1",
		"WARNING: DATA RACE\nRead at":          "DATA RACE\nRead at",
		"fatal error: all goroutines are asleep - deadlock!": "fatal error: all goroutines are asleep - deadlock!",
	} {
		if got := panics(words); got != want {
			t.Errorf("%q: %q", words, got)
		}
	}
}
