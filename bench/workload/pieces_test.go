package workload

import (
	"testing"

	"multiedge/bench/pattern"
	"multiedge/edge"
)

// Each message of a batch has places of its own, which are read when the batch is posted.
func TestPiecesOfBatch(t *testing.T) {
	local := pattern.Layout{Message: 1024, Stride: 2048, Slots: 64}
	s := &Spec{}
	s.Size, s.Depth, s.Batch, s.Pieces = 1024, 8, 4, 16
	d := newSender([]lane{{}}, edge.Work{Kind: edge.Write, Local: &edge.Region{}}, local, local, s)
	for i := range 4 {
		d.describe(d.works[i], &d.lanes[0], uint64(i))
	}
	if d.works[0].Pieces[0] == d.works[3].Pieces[0] {
		t.Errorf("messages 0 and 3 are gathered from the same place, %+v", d.works[0].Pieces[0].Off)
	}
}
