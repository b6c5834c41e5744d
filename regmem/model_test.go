package regmem

import (
	"encoding/binary"
	"math"
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

// grant asks for the grant, which must be had if it fits and only then.
func (m *record) grant(t *rapid.T, tab *Table, size uint64) (k Key, ok bool) {
	k, err := tab.Grant(m.r, m.owner, m.perm, m.off, m.n)
	fits := m.off <= size && m.n <= size && m.off+m.n <= size
	if m.perm&RemoteAtomic != 0 {
		fits = fits && m.off%8 == 0
	}
	if (err == nil) != (fits && m.perm >= 1 && m.perm <= 7) {
		t.Fatalf("Grant: %v", err)
	}
	return k, err == nil
}

func wantLen(t *rapid.T, tab *Table, n int) {
	if tab.Len() != n {
		t.Fatalf("%d keys, want %d", tab.Len(), n)
	}
}

// holds checks that at is the n bytes at off of a grant, whose bytes say where they are.
func (m *record) holds(t *rapid.T, at Ranges, off, n uint64) {
	dst := at.Bytes
	if at.Next != nil || uint64(len(dst)) != n || uint64(cap(dst)) != n {
		t.Fatalf("%d bytes, capacity %d, further ranges: %t; want %d", len(dst), cap(dst),
			at.Next != nil, n)
	}
	for j, b := range dst {
		if want := byte(uint64(m.r.ID)<<6 | (m.off + off + uint64(j))); b != want {
			t.Fatalf("byte %d is %#x, want %#x", j, b, want)
		}
	}
}

// tellingRegions returns regions each byte of which says where it is.
func tellingRegions(size int) []*Region {
	regions := make([]*Region, 4)
	for i := range regions {
		regions[i] = &Region{ID: uint32(i), Mem: Wrap(make([]byte, size))}
		for j := range size {
			regions[i].Mem.Bytes()[j] = byte(i<<6 | j)
		}
	}
	return regions
}

func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 64
		tab := NewTable(&hostileRand{})
		regions := tellingRegions(size)
		var model []record
		var known []Key // all keys ever granted
		region := rapid.SampledFrom(regions)
		owner := rapid.Uint64Range(1, 4)
		perm := rapid.Map(rapid.IntRange(0, 8), func(i int) Perm { return Perm(i) })
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
				k, ok := m.grant(t, tab, size)
				if !ok {
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
				at, err := tab.Resolve(k, o, p, off, n)
				if err != want {
					t.Fatalf("Resolve(%#x, %d, %v, %d, %d): %v, want %v", k, o, p, off, n, err, want)
				}
				if err == nil {
					model[i].holds(t, at, off, n)
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
				want := forget(func(m record) bool { return m.r == r })
				if got := tab.RevokeRegion(r, math.MaxInt); got != want || r.Granted() {
					t.Fatalf("RevokeRegion: %d, want %d; granted %t", got, want, r.Granted())
				}
			},
			"revoke owner": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				want := forget(func(m record) bool { return m.owner == o })
				if got := tab.RevokeOwner(o, math.MaxInt); got != want {
					t.Fatalf("RevokeOwner: %d, want %d", got, want)
				}
			},
			"": func(t *rapid.T) { wantLen(t, tab, len(model)) },
		})
	})
}

// The index against a map, with keys of one part whose homes are few and lie around the end of the slots, so that runs
// are long and wrap around.
func TestIndexAgainstMap(t *testing.T) {
	const slots = 16
	probe := part{slots: make([]slot, slots)}
	var crowded []Key
	for k := Key(1); len(crowded) < 24; k++ {
		if h := hash(k); h>>(64-partBits) == 5 && (probe.home(h) >= slots-2 || probe.home(h) == 0) {
			crowded = append(crowded, k)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var s slab
		x := index{slab: &s}
		model := map[Key]ref{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			k := rapid.SampledFrom(crowded).Draw(t, "key")
			if r := model[k]; r != 0 {
				x.remove(k)
				s.give(r)
				delete(model, k)
			} else if len(model) < slots/2 || rapid.IntRange(0, 19).Draw(t, "grow") == 0 {
				at, g := s.take()
				g.key, model[k] = k, at
				x.insert(k, at)
			}
			if x.n != len(model) {
				t.Fatalf("%d entries, want %d", x.n, len(model))
			}
			for _, k := range append(crowded, 0) {
				if r, _ := x.find(k); r != model[k] {
					t.Fatalf("find(%d) = %v, want %v", k, r, model[k])
				}
			}
		}
	})
}
