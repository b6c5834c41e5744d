package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/bench/xlate"
	memory "multiedge/bench/xlate/trace"
	"multiedge/edge"
	"multiedge/edge/space"
	"multiedge/internal/config"
	"multiedge/internal/trace"
	"multiedge/regmem"
)

const (
	tracedSpace = 64 << 30
	tracedBlock = 20000
)

// blocks has b write blocks to the beginning of a's sparse space, and read half as much from its end, until the test
// ends.
func blocks(t *testing.T, a, b string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	open := func(socket string) *edge.Device {
		d, err := edge.Open(ctx, edge.Config{Socket: socket})
		must(t, err)
		t.Cleanup(func() { d.Close() })
		return d
	}
	da, db := open(a), open(b)
	far, err := space.Map(ctx, da, tracedSpace, space.Options{})
	must(t, err)
	l, err := da.Listen(ctx, "s")
	must(t, err)
	go func() {
		if c, err := l.Accept(ctx); err == nil {
			far.Export(c, "heap", edge.RemoteRead|edge.RemoteWrite, 0, far.Len())
		}
	}()
	c, err := db.Dial(ctx, "a", "s")
	must(t, err)
	heap, err := c.Import(ctx, "heap")
	must(t, err)
	near, err := db.Register(1 << 20)
	must(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			w := edge.Work{Kind: edge.Write, Local: near, LocalOff: 4096, Len: tracedBlock, Remote: heap}
			if i%2 == 1 {
				w.Kind, w.RemoteOff, w.Len = edge.Read, tracedSpace-tracedBlock, tracedBlock/2
			}
			op, err := c.Post(ctx, &w)
			if err == nil {
				err = op.Wait(ctx)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// What operations use is recorded at both ends: where, how much, and by which kind of operation, of memory that is
// registered whole and of a sparse space, whose parts the trace has side by side; and the study replays it.
func TestTraceLookups(t *testing.T) {
	a, b := pair(t, config.Plaintext)
	blocks(t, a, b)
	for _, end := range []struct {
		socket, file  string
		writes, reads memory.Op
		spread        uint64
	}{
		{a, "a.memtrace", memory.Deposit, memory.Serve, 2 * slotBytes},
		{b, "b.txt", memory.Send, memory.Fetch, 1 << 20},
	} {
		file := filepath.Join(t.TempDir(), end.file)
		if code, _, errs := ctl("-s", end.socket, "trace", "--lookups", "-w", file, "-c", "40"); code != 0 ||
			!strings.Contains(errs, "40 lookups of 1 processes; 0 found no room") {
			t.Fatalf("%s: exit %d: %s", end.file, code, errs)
		}
		in, err := os.Open(file)
		must(t, err)
		tr, err := memory.Read(in)
		in.Close()
		if err != nil || tr.Check() != nil {
			t.Fatalf("%s: %v, %v", end.file, err, tr.Check())
		}
		bytes, low, high := map[memory.Op]int{}, uint64(1<<63), uint64(0)
		for _, r := range tr.Records {
			bytes[r.Op] += int(r.Length)
			low, high = min(low, r.Addr), max(high, r.Addr+uint64(r.Length))
			if r.Length > tracedBlock {
				t.Errorf("%s: %+v is longer than an operation", end.file, r)
			}
		}
		if len(bytes) != 2 || bytes[end.reads] < 3*tracedBlock || bytes[end.writes] < bytes[end.reads]*3/2 ||
			high-low > end.spread {
			t.Errorf("%s: bytes %v, from %#x to %#x", end.file, bytes, low, high)
		}
		lookups, err := xlate.NewLookups(tr, true)
		must(t, err)
		n, err := xlate.Simulate(lookups, xlate.Config{Entries: 1024})
		if err != nil || n.Lookups < 100 || n.NIMisses > 20 {
			t.Errorf("%s: %+v, %v", end.file, n, err)
		}
	}
}

// The trace of more processes than there can be leaves those that came last out, and says so; time does not go back.
func TestLookupsOfManyProcesses(t *testing.T) {
	l := &lookups{processes: map[int32]uint8{}, slots: map[slot]uint64{}}
	first := trace.Lookup{Region: 1, Size: 1 << 40, Off: 3 * slotBytes, Len: 1} // its slot comes before the other's
	must(t, l.add(&trace.Record{Time: 1000, Data: first.Append(nil)}))
	for pid := range int32(memory.MaxProcesses + 5) {
		u := trace.Lookup{PID: pid, Region: 1, Size: 1 << 40, Off: 3*slotBytes - 10, Len: 30,
			Site: uint8(regmem.ReadDest)}
		must(t, l.add(&trace.Record{Time: 1000 - 1, Data: u.Append(nil)}))
	}
	file := filepath.Join(t.TempDir(), "many")
	must(t, l.write(file))
	if r := l.Records; l.others != 5 || len(r) != memory.MaxProcesses+2 || r[0].Addr != firstSlot ||
		r[1].Addr != firstSlot+2*slotBytes-10 || r[1].Length != 10 || r[2].Addr != firstSlot || r[2].Length != 20 ||
		r[3].Length != 30 {
		t.Errorf("%d others, %d records, %+v", l.others, len(r), r[:4])
	}
	if err := l.add(&trace.Record{Data: []byte("nonsense")}); err == nil {
		t.Error("nonsense was taken")
	}
}
