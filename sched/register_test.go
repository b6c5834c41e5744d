package sched

import (
	"math/bits"
	"slices"
	"testing"
)

// highest is a scheduler of another file: the link of the highest number that has room.
type highest struct{ sent [MaxLinks]int }

func (*highest) Pick(live, room uint64) (int, bool) {
	live &= room
	return max(0, bits.Len64(live)-1), live != 0
}

func (h *highest) Sent(link, bytes int) { h.sent[link] += bytes }
func (*highest) Done(int, int)          {}
func (*highest) SetWeight(int, float64) {}

// A scheduler takes one file: it is found by name, behind those that are here already.
func TestAnotherScheduler(t *testing.T) {
	before := slices.Clone(constructors)
	defer func() { constructors = before }()
	Register("highest", func() Scheduler { return &highest{} })
	if names := Names(); !slices.Equal(names, []string{"srr", "wsrr", "wd", "adaptive", "highest"}) {
		t.Errorf("names: %v", names)
	}
	s, err := New("highest")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []uint64{0b0111, 0b1011, 0} {
		link, ok := s.Pick(0b0111, room)
		if want := bits.Len64(0b0111&room) - 1; ok != (want >= 0) || ok && link != want {
			t.Errorf("room %b: link %d, %v", room, link, ok)
		}
		if ok {
			s.Sent(link, 1000)
		}
	}
	if _, measured := s.(Measured); measured {
		t.Error("its weights are not the windows")
	}
	if s, _ := New("adaptive"); s.(Measured) == nil {
		t.Error("the weights of adaptive are the windows")
	}
}
