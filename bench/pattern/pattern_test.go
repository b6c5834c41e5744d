package pattern

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// world is a sender's and a receiver's memory with a perfect transport between them, for errors to be injected into.
type world struct {
	src      *Source
	from, to Layout
	a, b     []byte
	chk      *Checker
}

func newWorld(t testing.TB, size, message int) *world {
	t.Helper()
	from, to, err := Pair(size, message, true)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{src: New(42), from: from, to: to, a: make([]byte, size), b: make([]byte, size)}
	from.Fill(w.a, w.src)
	w.chk = NewChecker(w.src, w.b, from, to)
	return w
}

// deliver copies message seq into place.
func (w *world) deliver(seq uint64) {
	copy(w.slot(seq), w.a[w.from.Off(int(seq%uint64(w.from.Slots))):][:w.from.Message])
}

func (w *world) slot(seq uint64) []byte {
	return w.b[w.to.Off(int(seq%uint64(w.to.Slots))):][:w.to.Message]
}

func TestPerfectTransportHasNoErrors(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 63, 64, 65, 4096, 10000} {
		w := newWorld(t, 64<<10, size)
		total := uint64(3*w.from.Slots + 1)
		for seq := range total {
			w.deliver(seq)
			w.chk.Message(seq)
		}
		w.chk.Finish(total)
		if w.chk.Errors != 0 {
			t.Errorf("message %d bytes: %d errors: %v", size, w.chk.Errors, w.chk.Details)
		}
	}
}

// Each kind of damage a transport could do must be found, and described.
func TestInjectedErrorsAreFound(t *testing.T) {
	const seq = 20
	cases := []struct {
		name   string
		damage func(w *world)
		want   string
	}{
		{"bit flipped in the first byte", func(w *world) { w.slot(seq)[0] ^= 1 }, "wrong, the first at byte 0"},
		{"bit flipped in the last byte", func(w *world) { s := w.slot(seq); s[len(s)-1] ^= 0x80 },
			"1 of 1000 bytes wrong"},
		{"shifted by one", func(w *world) { s := w.slot(seq); copy(s[1:], s) }, "wrong"},
		{"two frames exchanged", func(w *world) {
			s := w.slot(seq)
			tmp := append([]byte(nil), s[:300]...)
			copy(s[:300], s[300:600])
			copy(s[300:600], tmp)
		}, "wrong"},
		{"never written", func(w *world) { clear(w.slot(seq)) }, "zero, as before"},
		{"stale tail", func(w *world) {
			old := seq - uint64(w.to.Slots)
			w.src.Fill(w.slot(seq),
				old%uint64(w.from.Slots))
		}, "stale"},
		{"wrote before the slot", func(w *world) { w.b[w.to.Off(int(seq%uint64(w.to.Slots)))-1]++ }, "canary next to"},
		{"wrote behind the slot", func(w *world) { w.b[w.to.Off(int(seq%uint64(w.to.Slots)))+1000]++ },
			"canary next to"},
		{"announced twice", func(w *world) { w.chk.Message(seq - 1) }, "announced twice"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 24<<10, 1000)
			if w.to.Slots >= seq {
				t.Fatalf("%d slots: the test wants slots to be used again before message %d", w.to.Slots, seq)
			}
			for s := uint64(0); s <= seq; s++ {
				w.deliver(s)
				if s == seq {
					c.damage(w)
				}
				w.chk.Message(s)
			}
			w.chk.Finish(seq + 1)
			if w.chk.Errors == 0 || !strings.Contains(strings.Join(w.chk.Details, "\n"), c.want) {
				t.Errorf("errors %d, details %q: want one with %q", w.chk.Errors, w.chk.Details, c.want)
			}
		})
	}
}

func TestFinishFindsLossAndGuardDamage(t *testing.T) {
	w := newWorld(t, 24<<10, 1000)
	for _, s := range []uint64{0, 1, 3} {
		w.deliver(s)
		w.chk.Message(s)
	}
	w.b[0] ^= 1
	w.b[len(w.b)-1] ^= 1
	w.chk.Finish(5)
	if w.chk.Errors != 4 { // messages 2 and 4, both guards
		t.Errorf("errors %d, want 4: %q", w.chk.Errors, w.chk.Details)
	}
}

func TestFinishFindsMessagesNobodySent(t *testing.T) {
	w := newWorld(t, 24<<10, 100)
	for s := range uint64(3) {
		w.deliver(s)
		w.chk.Message(s)
	}
	w.chk.Finish(2)
	if w.chk.Errors != 1 {
		t.Errorf("errors %d, want 1", w.chk.Errors)
	}
}

// Whatever single byte is changed wherever in the region, it is found.
func TestAnyChangedByteIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := rapid.IntRange(1, 3000).Draw(t, "message")
		size := Need(message, rapid.IntRange(2, 9).Draw(t, "slots"), true) + rapid.IntRange(0, 500).Draw(t, "rest")
		from, to, err := Pair(size, message, true)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{src: New(1), from: from, to: to, a: make([]byte, size), b: make([]byte, size)}
		from.Fill(w.a, w.src)
		w.chk = NewChecker(w.src, w.b, from, to)
		n := uint64(to.Slots)
		for s := range n {
			w.deliver(s)
		}
		w.b[rapid.IntRange(0, size-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		for s := range n {
			w.chk.Message(s)
		}
		w.chk.Finish(n)
		if w.chk.Errors == 0 {
			t.Fatalf("not found")
		}
	})
}

func TestOutOfOrderAndExtend(t *testing.T) {
	w := newWorld(t, 24<<10, 1000)
	slots := uint64(w.to.Slots)
	const mask = 1<<6 - 1
	for base := uint64(0); base < 200; base += slots {
		for i := slots; i > 0; i-- {
			seq := base + i - 1
			w.deliver(seq)
			if got := w.chk.Extend(seq&mask, mask); got != seq {
				t.Fatalf("Extend(%d) at floor %d = %d, want %d", seq&mask, w.chk.Floor(), got, seq)
			}
			w.chk.Message(seq)
		}
	}
	if w.chk.Errors != 0 {
		t.Error(w.chk.Details)
	}
}

func TestContentsDiffer(t *testing.T) {
	s := New(7)
	starts := map[int]uint64{}
	for id := range uint64(period) {
		at := start(id)
		if other, dup := starts[at]; dup {
			t.Fatalf("contents %d and %d begin at the same place", id, other)
		}
		starts[at] = id
	}
	buf := make([]byte, 4096)
	s.Fill(buf, 1)
	if wrong, _ := s.Mismatch(buf, 2); wrong < 4000 {
		t.Errorf("contents 1 and 2 differ in %d of 4096 bytes only", wrong)
	}
	if wrong, first := s.Mismatch(buf, 1); wrong != 0 || first != -1 {
		t.Errorf("own content: %d wrong, first %d", wrong, first)
	}
}

func TestPairRefusesTooSmallRegion(t *testing.T) {
	if _, _, err := Pair(64<<10, 60<<10, true); err == nil {
		t.Error("one slot was accepted for checking")
	}
	if _, _, err := Pair(4096, 1, false); err == nil {
		t.Error("a region smaller than its guards was accepted")
	}
}

func BenchmarkMismatch(b *testing.B) {
	s := New(1)
	buf := make([]byte, 1<<20)
	s.Fill(buf, 3)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if wrong, _ := s.Mismatch(buf, 3); wrong != 0 {
			b.Fatal(wrong)
		}
	}
}

// Aligned layouts begin where they say, do not overlap, stay off the guards, and find what is wrong as others do.
func TestAlignedLayouts(t *testing.T) {
	into := map[string]int{"best": 0, "middle": 2048, "worst": 1}
	for _, align := range Alignments {
		for _, message := range []int{8, 4096, 5000, 64 << 10, 1 << 20} {
			for _, checked := range []bool{false, true} {
				const size = 8 << 20
				from, to, err := PairAt(size, message, checked, align)
				if err != nil {
					t.Fatal(err)
				}
				unit := 4096
				if message >= 64<<10 {
					unit = 64 << 10
				}
				for _, l := range []struct {
					Layout
					into int
				}{{from, 0}, {to, into[align]}} {
					for _, k := range []int{0, 1, l.Slots - 1} {
						if off := l.Off(k); off%unit != l.into || off < Guard || off+message > size-Guard ||
							l.Stride < message {
							t.Errorf("%s, %d bytes, checked %v: slot %d of %d at %d, one each %d", align, message,
								checked, k, l.Slots, off, l.Stride)
						}
					}
				}
				if from.Slots < 1 || checked && from.Slots != to.Slots+1 {
					t.Errorf("%d and %d slots", from.Slots, to.Slots)
				}
				if !checked || message > 5000 {
					continue
				}
				w := &world{src: New(42), from: from, to: to, a: make([]byte, size), b: make([]byte, size)}
				from.Fill(w.a, w.src)
				w.chk = NewChecker(w.src, w.b, from, to)
				for seq := range uint64(5) {
					w.deliver(seq)
					w.chk.Message(seq)
				}
				w.b[to.Off(3)-1] ^= 1
				w.chk.Finish(5)
				if w.chk.Errors != 1 {
					t.Errorf("%s, %d bytes: %d errors, want the one that was made: %v", align, message, w.chk.Errors,
						w.chk.Details)
				}
			}
		}
	}
	if _, _, err := PairAt(1<<20, 8, false, "good"); err == nil || !strings.Contains(err.Error(),
		"[best middle worst]") {
		t.Errorf("error %v", err)
	}
	if _, _, err := PairAt(128<<10, 64<<10, false, "best"); err == nil {
		t.Error("a message that does not fit was accepted")
	}
}
