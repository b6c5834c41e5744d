package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
)

// The peer's protected flight comes right behind the ServerHello that gives its keys, while these are computed beside
// the engine. It is not lost, or every dial would wait for its repetition (clause 10.2: 20 ms).
func TestFlightBehindItsKeys(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		r := newRig(t, rigOptions{sealed: true, deferred: deferred})
		r.settle()
		from := r.now
		r.connect(engine.DialOptions{})
		if took := r.now.Sub(from); took > 5*time.Millisecond {
			t.Errorf("deferred %v: a dial took %v on a wire of 5 us", deferred, took)
		}
	}
}
