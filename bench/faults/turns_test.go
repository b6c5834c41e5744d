package faults

import (
	"testing"
	"time"
)

func TestTurns(t *testing.T) {
	w := func(bytes uint64, stall, p99 time.Duration) *Window {
		return &Window{Bytes: bytes, Seconds: 2, Stall: stall, P99: float64(p99)}
	}
	// one turn in which the machine was away for most of one window, one in which it was for most of the other
	x := turns{
		clean: []*Window{w(100, 0, 0), w(10, 0, 0), w(100, 0, 0), w(120, 0, 0), w(80, 0, 0)},
		with:  []*Window{w(70, 3, 9), w(80, 8, 4), w(5, 1, 30), w(90, 2, 2), w(64, 4, 4)},
	}
	if got := x.ratio(); got != 0.75 {
		t.Errorf("ratio %v, want 0.75, the third of 0.05, 0.70, 0.75, 0.80 and 8", got)
	}
	if got := x.cleanRate(); got != 50 {
		t.Errorf("%v bytes/s without, want 50", got)
	}
	if x.stall() != 8 || x.p99() != 4 || len(x.all()) != 10 {
		t.Errorf("stall %d, p99 %d, %d windows; want 8, 4, 10", x.stall(), x.p99(), len(x.all()))
	}
}
