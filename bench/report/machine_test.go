package report

import (
	"runtime"
	"testing"
	"time"
)

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.CPUs < 1 || m.Memory < 64<<20 || m.Kernel == "" || m.Load < 0 {
		t.Errorf("%+v", m)
	}
	busy, stolen, start := BusySeconds(), StolenSeconds(), time.Now()
	if busy <= 0 || stolen < 0 || stolen > busy {
		t.Errorf("this machine was busy for %v s and robbed of %v s", busy, stolen)
	}
	for time.Since(start) < 60*time.Millisecond {
	}
	if more := BusySeconds() - busy; more < 0.02 || more > 10*float64(runtime.NumCPU()) {
		t.Errorf("60 ms of work are %v s", more)
	}
}
