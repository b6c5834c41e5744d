package path

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// What was heard is forgotten after some periods without it, and not before.
func TestHeard(t *testing.T) {
	h := NewHeard(time.Second)
	now := mono.Time(time.Hour)
	if !h.Note(now, 3, 7) || h.Note(now, 3, 7) || h.On(now, 3) != 1<<7 || h.On(now, 2) != 0 {
		t.Error("not heard, or more than was")
	}
	if h.On(now.Add(hearFor*time.Second), 3) == 0 {
		t.Error("forgotten too early")
	}
	h.Note(now.Add(hearFor*time.Second), 3, 8)
	if on := h.On(now.Add(2*hearFor*time.Second), 3); on != 1<<8 {
		t.Errorf("%b is heard later", on)
	}
	quiet := NewHeard(time.Second)
	quiet.Note(now, 3, 7)
	if on := quiet.On(now.Add(2*hearFor*time.Second), 3); on != 0 {
		t.Errorf("%b is heard although nothing was since", on)
	}
	if h.Forget(3); h.On(now.Add(2*hearFor*time.Second), 3) != 0 {
		t.Error("not forgotten")
	}
}
