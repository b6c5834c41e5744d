package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQueueKeepsItsOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q Queue[int]
	var want []int
	for i := range 20_000 {
		switch rng.IntN(8) {
		case 0, 1, 2, 3:
			q.Push(i)
			want = append(want, i)
		case 7:
			odd := func(v int) bool { return v%7 == i%7 }
			q.Remove(odd)
			want = slices.DeleteFunc(want, odd)
		default:
			if q.Len() > 0 {
				q.Pop()
				want = want[1:]
			}
		}
		if q.Len() != len(want) || (q.Front() == nil) != (len(want) == 0) || len(want) > 0 && *q.Front() != want[0] {
			t.Fatalf("after %d steps: %d elements, want %v", i, q.Len(), want)
		}
	}
	if cap(q.Items) > 4*max(64, len(want)) {
		t.Errorf("memory for %d elements, %d wait", cap(q.Items), len(want))
	}
}
