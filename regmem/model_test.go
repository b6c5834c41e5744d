package regmem

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// hostileRand draws before each fresh key a zero and the key before it, so that every grant has to try again.
type hostileRand struct{ step, last uint64 }

func (h *hostileRand) Read(b []byte) (int, error) {
	h.step++
	v := uint64(0)
	switch h.step % 3 {
	case 1:
		v = h.last
	case 2:
		h.last++
		v = h.last << 56 // only high bits differ
	}
	return copy(b, binary.LittleEndian.AppendUint64(nil, v)), nil
}

// record is the naive model's idea of a grant: a list is searched, and bounds are judged in 128 bits by care.
type record struct {
	key    Key
	owner  uint64
	perm   Perm
	off, n uint64
	r      *Region
}

func (m *record) check(owner uint64, perm Perm, off, n uint64) error {
	switch sum := off + n; {
	case m.owner != owner:
		return ErrOwner
	case perm == 0 || m.perm|perm != m.perm:
		return ErrPermission
	case sum < off || sum > m.n: // wrapped around, or too far
		return ErrBounds
	}
	return nil
}

func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 64
		tab := NewTable(&hostileRand{})
		regions := make([]*Region, 4)
		for i := range regions {
			regions[i] = &Region{ID: uint32(i), Mem: Wrap(make([]byte, size))}
			for j := range size {
				regions[i].Mem.Bytes()[j] = byte(i<<6 | j) // every byte says where it is
			}
		}
		var model []record
		var known []Key // all keys ever granted
		region := rapid.SampledFrom(regions)
		owner := rapid.Uint64Range(1, 4)
		perm := rapid.Map(rapid.IntRange(0, 4), func(i int) Perm { return Perm(i) })
		extent := rapid.OneOf(rapid.Uint64Range(0, size+2), rapid.Uint64Range(^uint64(0)-size, ^uint64(0)))
		forget := func(gone func(record) bool) int {
			before := len(model)
			model = slices.DeleteFunc(model, gone)
			return before - len(model)
		}
		key := func(t *rapid.T) Key {
			if len(known) == 0 || rapid.IntRange(0, 9).Draw(t, "foreign") == 0 {
				return Key(rapid.Uint64Range(0, 3).Draw(t, "key"))
			}
			return rapid.SampledFrom(known).Draw(t, "key")
		}
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				m := record{r: region.Draw(t, "region"), owner: owner.Draw(t, "owner"), perm: perm.Draw(t, "perm"),
					off: extent.Draw(t, "off"), n: extent.Draw(t, "n")}
				k, err := tab.Grant(m.r, m.owner, m.perm, m.off, m.n)
				fits := m.off <= size && m.n <= size && m.off+m.n <= size
				if (err == nil) != (fits && m.perm >= 1 && m.perm <= 3) {
					t.Fatalf("Grant: %v", err)
				}
				if err != nil {
					return
				}
				if k == 0 || slices.ContainsFunc(model, func(o record) bool { return o.key == k }) {
					t.Fatalf("key %#x is zero or taken", k)
				}
				m.key = k
				model, known = append(model, m), append(known, k)
			},
			"check": func(t *rapid.T) {
				k, o, p := key(t), owner.Draw(t, "owner"), perm.Draw(t, "perm")
				off, n := extent.Draw(t, "off"), extent.Draw(t, "n")
				i := slices.IndexFunc(model, func(m record) bool { return m.key == k })
				want := ErrKey
				if i >= 0 {
					if rapid.Bool().Draw(t, "as owner") {
						o, p = model[i].owner, model[i].perm
					}
					want = model[i].check(o, p, off, n)
				}
				dst, r, err := tab.Check(k, o, p, off, n)
				if err != want {
					t.Fatalf("Check(%#x, %d, %v, %d, %d): %v, want %v", k, o, p, off, n, err, want)
				}
				if err != nil {
					return
				}
				if r != model[i].r || uint64(len(dst)) != n || uint64(cap(dst)) != n {
					t.Fatalf("region %v, %d bytes, capacity %d; want %v, %d", r, len(dst), cap(dst), model[i].r, n)
				}
				for j, b := range dst {
					if want := byte(uint64(r.ID)<<6 | (model[i].off + off + uint64(j))); b != want {
						t.Fatalf("byte %d is %#x, want %#x", j, b, want)
					}
				}
			},
			"revoke": func(t *rapid.T) {
				k := key(t)
				if got, want := tab.Revoke(k), forget(func(m record) bool { return m.key == k }) == 1; got != want {
					t.Fatalf("Revoke(%#x): %t, want %t", k, got, want)
				}
			},
			"revoke region": func(t *rapid.T) {
				r := region.Draw(t, "region")
				if got, want := tab.RevokeRegion(r), forget(func(m record) bool { return m.r == r }); got != want || r.Granted() {
					t.Fatalf("RevokeRegion: %d, want %d; granted %t", got, want, r.Granted())
				}
			},
			"revoke owner": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				if got, want := tab.RevokeOwner(o), forget(func(m record) bool { return m.owner == o }); got != want {
					t.Fatalf("RevokeOwner: %d, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				if tab.Len() != len(model) {
					t.Fatalf("%d keys, want %d", tab.Len(), len(model))
				}
			},
		})
	})
}

// The index against a map, with keys whose homes are few and lie around the end of the slots, so that runs are long and wrap around.
func TestIndexAgainstMap(t *testing.T) {
	probe := index{slots: make([]slot, minSlots), shift: 60}
	var crowded []Key
	for k := Key(1); len(crowded) < 24; k++ {
		if h := probe.home(k); h >= minSlots-2 || h == 0 {
			crowded = append(crowded, k)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var x index
		model := map[Key]*grant{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			k := rapid.SampledFrom(crowded).Draw(t, "key")
			if model[k] != nil {
				x.remove(k)
				delete(model, k)
			} else if len(model) < minSlots/2 || rapid.IntRange(0, 19).Draw(t, "grow") == 0 {
				model[k] = &grant{key: k}
				x.insert(k, model[k])
			}
			if x.n != len(model) {
				t.Fatalf("%d entries, want %d", x.n, len(model))
			}
			for _, k := range append(crowded, 0) {
				if x.find(k) != model[k] {
					t.Fatalf("find(%d) = %v, want %v", k, x.find(k), model[k])
				}
			}
		}
	})
}
