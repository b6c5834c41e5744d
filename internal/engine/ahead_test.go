package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Clause 6.7: a notification without bytes leaves before bytes that wait, unless something orders it behind them. Lost,
// it comes all the same, once.
func TestBareNotificationLeavesFirst(t *testing.T) {
	const size = 2 << 20 // more than a window
	for _, c := range []struct {
		how         engine.DialOptions
		long, short engine.OpFlags
		lost, first bool
	}{
		{first: true},
		{first: true, lost: true},
		{long: engine.BackwardFence, first: true}, // as a stream's bytes and its credit
		{short: engine.BackwardFence},
		{long: engine.ForwardFence},
		{how: inOrder},
		{how: overlaps},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r := newRig(t, rigOptions{super: superBytes})
			conn := r.connect(c.how)
			mem, key := r.export(1, conn[1], size, both)
			r.settle()
			b := r.n[1]
			b.auto = true
			left := c.lost
			r.pass = func(from int, f *flight) bool {
				if from == 0 && left && slices.Contains(kinds(f.b), wire.KindWrite) {
					left = false
					return false
				}
				return true
			}
			data := pattern(1, size)
			r.submit(0, conn[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: data, Imm: 1,
				Flags: engine.Notify | c.long})
			r.submit(0, conn[0], engine.Op{Kind: engine.OpWrite, Token: 2, Key: key, Imm: 2,
				Flags: engine.Notify | c.short})
			early := false // the program learns that it arrived before the bytes have
			r.must("the ends of both", 10*time.Second, func() bool {
				_, long := r.n[0].done[1]
				_, short := r.n[0].done[2]
				early = early || short && !long
				return short && long
			})
			var got []uint32
			for _, n := range b.notes {
				got = append(got, n.Imm)
			}
			want := []uint32{1, 2}
			if c.first {
				want = []uint32{2, 1}
			}
			if early != c.first {
				t.Errorf("complete before the bytes: %v, want %v", early, c.first)
			}
			if left || !slices.Equal(got, want) || !bytes.Equal(mem, data) {
				t.Errorf("notifications %v, want %v; bytes in place: %v", got, want, bytes.Equal(mem, data))
			}
			n := &b.e.Count.Loss
			if held, twice := b.e.Count.Op.SegmentsHeld, n.SegmentsDuplicated; held > 0 || twice > 0 {
				t.Errorf("%d segments had to wait for others, %d came twice", held, twice)
			}
			r.wantStatus(0, 1, engine.OK)
			r.wantStatus(0, 2, engine.OK)
		})
	}
}

// It leaves once, in the first frame of the bytes that it overtakes.
func TestBareNotificationLeavesOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 1<<20, both)
	r.settle()
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 20_000)})
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 2, Key: key, Flags: engine.Notify})
	var with []int
	for k, f := range r.take(0) {
		var d wire.Frame
		if err := d.Decode(f.b[wire.EthLen:]); err != nil {
			t.Fatal(err)
		}
		var g wire.Segment
		for tail := d.Tail; len(tail) > 0; {
			var err error
			if tail, err = g.Next(tail); err != nil {
				t.Fatal(err)
			}
			if g.Kind == wire.KindWrite && len(g.Data) == 0 && d.Flags&wire.FlagBulk != 0 {
				with = append(with, k)
			} else if g.Kind == wire.KindWrite || g.Kind == wire.KindWriteNext {
				t.Errorf("frame %d has a write of %d bytes alone", k, len(g.Data))
			}
		}
	}
	if !slices.Equal(with, []int{0}) {
		t.Errorf("the notification is in frames %v, want the first alone", with)
	}
}

// However many notifications a program posts, one of them at a time overtakes bytes: answers to the peer's reads and
// its own bytes go on.
func TestBareNotificationsHoldUpNothing(t *testing.T) {
	const size = 256 << 10
	r := newRig(t, rigOptions{window: 8192})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	back, backKey := r.export(0, c[0], size, both)
	copy(back, pattern(2, size))
	r.settle()
	r.n[1].auto = true
	data, read := pattern(1, size), make([]byte, size)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1 << 20, Key: key, Local: data,
		Flags: engine.Notify, Imm: 1})
	r.submit(1, c[1], engine.Op{Kind: engine.OpRead, Token: 1, Key: backKey, Local: read})
	token := uint64(0)
	r.must("the write and the read beside notifications", 5*time.Second, func() bool {
		for r.n[0].e.Room(c[0]) > 0 {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: token, Key: key, Flags: engine.Notify})
			token++
		}
		_, wrote := r.n[0].done[1<<20]
		_, got := r.n[1].done[1]
		return wrote && got
	})
	before := slices.IndexFunc(r.n[1].notes, func(n engine.Notification) bool { return n.Imm == 1 })
	if frames := size / 8000; before > frames {
		t.Errorf("%d notifications overtook the write, which has fewer than %d frames", before, frames)
	}
	if !bytes.Equal(mem, data) || !bytes.Equal(read, back) {
		t.Error("wrong bytes")
	}
}

// A peer that claims to have applied what was not sent ends nothing, even if later operations have left (clause 7.2).
func TestBareNotificationTellsNothingOfOthers(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(0, c[0], 2<<20, both)
	r.settle()
	like, pn := r.like(c[0], 0)
	claim := func(base uint32) {
		for _, beyond := range [][]byte{nil, {7: 0xfe}} {
			pn++
			r.give(1, flight{b: forge(like, pn, &wire.Segment{Kind: wire.KindOpAck, Conn: uint32(c[1]), Op: base,
				Limit: base + 64, Data: beyond})})
		}
		r.poll(1)
	}
	r.submit(1, c[1], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 1<<20)})
	r.submit(1, c[1], engine.Op{Kind: engine.OpWrite, Token: 2, Key: key, Local: make([]byte, 1<<20)})
	r.submit(1, c[1], engine.Op{Kind: engine.OpWrite, Token: 3, Key: key, Flags: engine.Notify})
	for base := range uint32(4) {
		claim(base)
	}
	if len(r.n[1].done) > 0 {
		t.Errorf("before anything left: ended %v", r.n[1].done)
	}
	r.take(1) // the notification, and part of the first write
	for base := range uint32(4) {
		claim(base)
	}
	if _, wrote := r.n[1].done[2]; wrote {
		t.Errorf("while the first write leaves: ended %v", r.n[1].done)
	}
}
