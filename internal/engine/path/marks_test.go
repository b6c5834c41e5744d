package path

import "testing"

// Clause 21.12: counts of marks are modulo 2^32, packet numbers are not. Counts of an old path are taken, older ones
// change nothing, and more frames than have left cannot be.
func TestMarksAreCountedModulo(t *testing.T) {
	const turn = 1 << 32
	for name, c := range map[string]struct {
		ect0, ce       uint32 // as told last
		total          uint64 // frames counted until then
		toldECT0       uint32
		toldCE         uint32
		sent           uint64
		frames, marked int32
		ok             bool
	}{
		"the first":                      {0, 0, 0, 8, 2, 10, 10, 2, true},
		"more than have left":            {0, 0, 0, 9, 2, 10, 0, 0, false},
		"more marks than frames":         {5, 5, 10, 2, 9, 100, 0, 0, false},
		"marks taken back":               {5, 5, 10, 20, 4, 100, 0, 0, false},
		"older":                          {8, 2, 10, 7, 2, 100, 0, 0, true},
		"the same":                       {8, 2, 10, 8, 2, 100, 0, 0, true},
		"long without marks":             {0, 0, 0, 8, 2, turn/2 + 100, 10, 2, true},
		"frames wrap":                    {turn - 5, 0, turn - 5, 5, 0, turn + 5, 10, 0, true},
		"marks wrap":                     {0, turn - 5, turn - 5, 0, 5, turn + 5, 10, 10, true},
		"the sum wraps":                  {turn - 5, 2, turn - 3, turn - 2, 4, turn + 2, 5, 2, true},
		"wrapped, more than have left":   {turn - 5, 0, turn - 5, 5, 0, turn + 4, 0, 0, false},
		"in a later turn":                {7, 3, 3*turn + 10, 17, 3, 3*turn + 20, 10, 0, true},
		"in a later turn, than has left": {7, 3, 3*turn + 10, 17, 3, 3*turn + 19, 0, 0, false},
	} {
		m := marking{ect0: c.ect0, ce: c.ce, total: c.total, lost: 1, bare: 1}
		was := m
		frames, marked, ok := m.add(c.toldECT0, c.toldCE, c.sent)
		if frames != c.frames || marked != c.marked || ok != c.ok {
			t.Errorf("%s: %d frames, %d marked, %v", name, frames, marked, ok)
		}
		want := was
		if c.frames > 0 {
			want = marking{ect0: c.toldECT0, ce: c.toldCE, total: c.total + uint64(c.frames)}
		}
		if m != want {
			t.Errorf("%s: %+v, want %+v", name, m, want)
		}
	}
}
