package edge

import (
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// countingDriver is a transport that takes what is posted and never completes any of it.
type countingDriver struct{ drives int }

func (d *countingDriver) Drive() (worked, ran bool)                   { d.drives++; return true, true }
func (*countingDriver) DriverSleep(int)                               {}
func (*countingDriver) Policy(func(a, b regmem.ChunkUse) bool) uint32 { return 0 }
func (*countingDriver) Memory(int) *regmem.Memory                     { return nil }

// Done leaves short operations together that were posted one by one behind others, and nothing else.
func TestGather(t *testing.T) {
	p := newDuo(t, Config{}, gatherLongest+1)
	p.f.setHold(true)
	defer p.f.setHold(false)
	d, transport := p.client.at.Load(), &countingDriver{}
	d.drive = transport
	defer func() { d.drive = nil }()
	post := func(n int) Op {
		op, err := p.out.Post(NoWait, &Work{Kind: Write, Local: p.local, Len: n, Remote: p.remote})
		must(t, err)
		return op
	}
	long := func() { d.slots.gather.at.Store(int64(mono.Now().Add(time.Hour))) } // the time of gathering is not over
	drives := func(op Op) bool {
		before := transport.drives
		if op.Done() {
			t.Fatal("done")
		}
		return transport.drives > before
	}

	long()
	first := post(8)
	if !drives(first) {
		t.Error("a lone operation waits")
	}
	long()
	if !drives(first) {
		t.Error("looks wait though nothing was posted")
	}
	for i := 1; i < gatherMost; i++ {
		if post(8); drives(first) {
			t.Fatalf("operation %d behind another does not wait", i)
		}
	}
	if post(8); !drives(first) {
		t.Errorf("%d operations wait", gatherMost)
	}
	long()
	if post(gatherLongest + 1); !drives(first) {
		t.Error("a long operation waits")
	}
	long()
	post(8)
	if d.slots.gather.at.Store(int64(mono.Now().Add(-gatherTime))); !drives(first) {
		t.Error("an operation waits for ever")
	}
	long()
	post(8)
	if before := transport.drives; p.client.Poll() != 0 || transport.drives == before {
		t.Error("Poll does not send what waits")
	}
}

// An operation in pieces is as long as they are together, however short the last one is.
func TestLong(t *testing.T) {
	pieces := func(n ...int) *Work {
		w := &Work{}
		for _, n := range n {
			w.Pieces = append(w.Pieces, Piece{Len: n})
		}
		return w
	}
	for _, c := range []struct {
		last uint64
		w    *Work
		want bool
	}{{gatherLongest, nil, false}, {gatherLongest + 1, nil, true}, {gatherLongest, &Work{}, false},
		{8, pieces(8), false}, {8, pieces(gatherLongest-8, 8), false}, {9, pieces(gatherLongest-8, 9), true},
		{0, pieces(gatherLongest, 1, 0), true}} {
		if got := long(&ipc.SQE{Len: c.last}, c.w); got != c.want {
			t.Errorf("last piece %d of %+v: long %t", c.last, c.w, got)
		}
	}
}
