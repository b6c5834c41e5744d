package regmem

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
)

const (
	alice uint64 = 1
	bob   uint64 = 2
)

// mustGrant grants or ends the test.
func mustGrant(t testing.TB, tab *Table, r *Region, owner uint64, perm Perm, off, n uint64) Key {
	t.Helper()
	k, err := tab.Grant(r, owner, perm, off, n)
	if err != nil {
		t.Fatalf("Grant(%d, %v, %d, %d): %v", owner, perm, off, n, err)
	}
	return k
}

// Every combination of what can be wrong with an access: the first check that fails, in the order key, owner,
// permission, bounds, answers.
func TestResolveOrder(t *testing.T) {
	tab := NewTable(rand.Reader)
	r := &Region{ID: 7, Mem: Wrap(make([]byte, 4096))}
	good := mustGrant(t, tab, r, alice, RemoteWrite, 0, 4096)
	revoked := mustGrant(t, tab, r, alice, RemoteWrite, 0, 4096)
	tab.Revoke(revoked)
	keys := []struct {
		k  Key
		ok bool
	}{{good, true}, {revoked, false}, {0, false}, {good ^ 1, false}}
	owners := []struct {
		owner uint64
		ok    bool
	}{{alice, true}, {bob, false}, {0, false}}
	perms := []struct {
		p  Perm
		ok bool
	}{{RemoteWrite, true}, {RemoteRead, false}, {RemoteRead | RemoteWrite, false}, {0, false}, {0xff, false}}
	ranges := []struct {
		off, n uint64
		ok     bool
	}{
		{0, 4096, true}, {0, 0, true}, {4096, 0, true}, {4095, 1, true}, {100, 200, true},
		{0, 4097, false}, {4096, 1, false}, {4097, 0, false}, {1, 4096, false},
		{math.MaxUint64 - 7, 8, false}, {8, math.MaxUint64 - 7, false}, {math.MaxUint64, math.MaxUint64, false},
		{math.MaxUint64, 0, false}, {0, math.MaxUint64, false}, {1 << 63, 1 << 63, false},
	}
	for _, k := range keys {
		for _, o := range owners {
			for _, p := range perms {
				for _, g := range ranges {
					var want error
					switch {
					case !k.ok:
						want = ErrKey
					case !o.ok:
						want = ErrOwner
					case !p.ok:
						want = ErrPermission
					case !g.ok:
						want = ErrBounds
					}
					for _, cached := range []bool{false, true} {
						tab.last = &none
						if cached {
							tab.Resolve(good, alice, RemoteWrite, 0, 0)
						}
						at, err := tab.Resolve(k.k, o.owner, p.p, g.off, g.n)
						dst := at.Bytes
						if err != want {
							t.Fatalf("Resolve(%v, %d, %v, %d, %d), cached %t: %v, want %v", k, o.owner, p.p, g.off, g.n,
								cached, err, want)
						}
						if at.Next != nil || want != nil && dst != nil {
							t.Fatalf("Resolve: %v, but %d bytes, further ranges: %t", err, len(dst), at.Next != nil)
						}
						if want == nil && (uint64(len(dst)) != g.n || uint64(cap(dst)) != g.n || dst == nil ||
							g.n > 0 && &dst[0] != &r.Mem.Bytes()[g.off]) {
							t.Fatalf("Resolve(%d, %d) returned %d bytes (capacity %d), or others", g.off, g.n, len(dst),
								cap(dst))
						}
					}
				}
			}
		}
	}
}

// Offsets count from the start of the grant, and a grant reaches nothing beside it.
func TestResolveWindow(t *testing.T) {
	tab := NewTable(rand.Reader)
	mem := make([]byte, 100)
	k := mustGrant(t, tab, &Region{Mem: Wrap(mem)}, alice, RemoteRead|RemoteWrite, 10, 20)
	at, err := tab.Resolve(k, alice, RemoteRead|RemoteWrite, 5, 15)
	if err != nil {
		t.Fatal(err)
	}
	copy(at.Bytes, bytes.Repeat([]byte{1}, 100))
	for i, b := range mem {
		if want := byte(0); i >= 15 && i < 30 {
			want = 1
			if b != want {
				t.Fatalf("byte %d not reached", i)
			}
		} else if b != want {
			t.Fatalf("byte %d overwritten", i)
		}
	}
	for _, c := range [][2]uint64{{0, 21}, {20, 1}, {5, 16}, {math.MaxUint64 - 9, 10}} {
		if _, err := tab.Resolve(k, alice, RemoteRead, c[0], c[1]); err != ErrBounds {
			t.Errorf("Resolve(%d, %d) of a grant of 20: %v, want ErrBounds", c[0], c[1], err)
		}
	}
}

func TestGrantRefuses(t *testing.T) {
	tab := NewTable(rand.Reader)
	r := &Region{Mem: Wrap(make([]byte, 4096))}
	closed := &Region{Mem: Wrap(make([]byte, 4096))}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r      *Region
		perm   Perm
		off, n uint64
		want   error
	}{
		{nil, RemoteRead, 0, 1, ErrClosed},
		{&Region{}, RemoteRead, 0, 1, ErrClosed},
		{closed, RemoteRead, 0, 1, ErrClosed},
		{r, 0, 0, 1, ErrPermission},
		{r, 8, 0, 1, ErrPermission},
		{r, RemoteAtomic, 4, 8, ErrPermission},
		{r, RemoteRead | 128, 0, 1, ErrPermission},
		{r, RemoteRead, 0, 4097, ErrBounds},
		{r, RemoteRead, 4097, 0, ErrBounds},
		{r, RemoteRead, math.MaxUint64 - 7, 8, ErrBounds},
	} {
		if k, err := tab.Grant(c.r, alice, c.perm, c.off, c.n); k != 0 || !errors.Is(err, c.want) {
			t.Errorf("Grant(%v, %v, %d, %d) = %v, want %v", c.r, c.perm, c.off, c.n, err, c.want)
		}
	}
	tab.limit = 2
	mustGrant(t, tab, r, alice, RemoteRead, 0, 0)
	mustGrant(t, tab, r, alice, RemoteRead, 4096, 0)
	if _, err := tab.Grant(r, alice, RemoteRead, 0, 0); !errors.Is(err, ErrQuota) {
		t.Errorf("grant beyond the limit: %v, want ErrQuota", err)
	}
	if tab.Len() != 2 {
		t.Errorf("%d keys, want 2", tab.Len())
	}
}

// words is a random source that yields the given keys, then io.EOF.
func words(keys ...Key) io.Reader {
	var b []byte
	for _, k := range keys {
		b = binary.LittleEndian.AppendUint64(b, uint64(k))
	}
	return bytes.NewReader(b)
}

func TestKeysAreNeverZeroNorRepeated(t *testing.T) {
	r := &Region{Mem: Wrap(make([]byte, 8))}
	tab := NewTable(words(0, 0, 5, 5, 0, 5, 6))
	for _, want := range []Key{5, 6} {
		if k := mustGrant(t, tab, r, alice, RemoteRead, 0, 8); k != want {
			t.Fatalf("key %d, want %d", k, want)
		}
	}
	if _, err := tab.Grant(r, alice, RemoteRead, 0, 8); !errors.Is(err, io.EOF) || tab.Len() != 2 {
		t.Errorf("grant without randomness: %v, %d keys, want EOF and 2", err, tab.Len())
	}
	if _, err := NewTable(words(make([]Key, 1000)...)).Grant(r, alice, RemoteRead, 0, 8); err == nil {
		t.Error("a source of zeros yielded a key")
	}
	defer func() {
		if recover() == nil {
			t.Error("NewTable(nil) did not panic")
		}
	}()
	NewTable(nil)
}

func TestRevoke(t *testing.T) {
	tab := NewTable(rand.Reader)
	regions := []*Region{{ID: 0, Mem: Wrap(make([]byte, 8))}, {ID: 1, Mem: Wrap(make([]byte, 8))}}
	var keys []Key
	for i := range 12 { // region i%2, owner i%3
		keys = append(keys, mustGrant(t, tab, regions[i%2], uint64(i%3), RemoteRead, 0, 8))
	}
	expect := func(what string, n int, valid func(i int) bool) {
		t.Helper()
		if tab.Len() != n {
			t.Errorf("%s: %d keys, want %d", what, tab.Len(), n)
		}
		for i, k := range keys {
			if _, err := tab.Resolve(k, uint64(i%3), RemoteRead, 0, 8); (err == nil) != valid(i) || err != nil &&
				err != ErrKey {
				t.Errorf("%s: key %d: %v", what, i, err)
			}
		}
	}
	tab.Resolve(keys[0], 0, RemoteRead, 0, 8) // the latest hit must be forgotten too
	if !tab.Revoke(keys[0]) || tab.Revoke(keys[0]) || tab.Revoke(0) {
		t.Error("Revoke does not say whether there was a key")
	}
	expect("Revoke", 11, func(i int) bool { return i != 0 })
	if n := tab.RevokeOwner(1, math.MaxInt); n != 4 {
		t.Errorf("RevokeOwner: %d, want 4", n)
	}
	expect("RevokeOwner", 7, func(i int) bool { return i != 0 && i%3 != 1 })
	if err := regions[0].Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("Close of a granted region: %v, want ErrBusy", err)
	}
	if n := tab.RevokeRegion(regions[0], math.MaxInt); n != 3 {
		t.Errorf("RevokeRegion: %d, want 3", n)
	}
	expect("RevokeRegion", 4, func(i int) bool { return i != 0 && i%3 != 1 && i%2 != 0 })
	if tab.RevokeRegion(regions[0], math.MaxInt)+tab.RevokeOwner(1, math.MaxInt)+tab.RevokeOwner(99, math.MaxInt)+
		tab.RevokeRegion(&Region{}, math.MaxInt) != 0 {
		t.Error("something was revoked twice")
	}
	regions[0].InFlight = 1
	if err := regions[0].Close(); !errors.Is(err, ErrBusy) || regions[0].Mem.Bytes() == nil {
		t.Errorf("Close with an operation in flight: %v, want ErrBusy and the memory", err)
	}
	regions[0].InFlight = 0
	for range 2 {
		if err := regions[0].Close(); err != nil || regions[0].Mem.Bytes() != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if tab.RevokeOwner(0, math.MaxInt)+tab.RevokeOwner(2, math.MaxInt) != 4 || tab.Len() != 0 || len(tab.owners) != 0 {
		t.Errorf("%d keys and %d owners left", tab.Len(), len(tab.owners))
	}
}

func TestPermString(t *testing.T) {
	for p, want := range map[Perm]string{0: "none", 1: "read", 2: "write", 3: "read+write",
		4: "atomic", 7: "read+write+atomic", 8: "invalid(0x8)"} {
		if p.String() != want {
			t.Errorf("Perm(%d): %s, want %s", p, p, want)
		}
	}
}

func TestResolveAllocs(t *testing.T) {
	tab, keys := filled(t, 1000)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		k := keys[i%len(keys)]
		tab.Resolve(k, alice, RemoteWrite, 0, 64)               // miss of the last hit
		tab.Resolve(k, alice, RemoteWrite, 64, 64)              // hit
		tab.Resolve(k+1, alice, RemoteWrite, 0, 64)             // each refusal
		tab.Resolve(k, bob, RemoteWrite, 0, 64)                 //
		tab.Resolve(k, alice, RemoteRead, 0, 64)                //
		tab.Resolve(k, alice, RemoteWrite, math.MaxUint64-7, 8) //
		i++
	}); n != 0 {
		t.Errorf("Resolve allocates %v times, want 0", n)
	}
}

func filled(t testing.TB, n int) (*Table, []Key) {
	tab := NewTable(rand.Reader)
	r := &Region{Mem: Wrap(make([]byte, 1<<20))}
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = mustGrant(t, tab, r, alice, RemoteWrite, 0, 1<<20)
	}
	return tab, keys
}

func TestRevokeNext(t *testing.T) {
	tab := NewTable(rand.Reader)
	r := &Region{ID: 1, Mem: Wrap(make([]byte, 64))}
	want := map[Key]uint64{}
	for owner := range uint64(5) {
		k, err := tab.Grant(r, owner, RemoteRead, 0, 8)
		if err != nil {
			t.Fatal(err)
		}
		want[k] = owner
	}
	for range 5 {
		g, ok := tab.RevokeNext(r)
		k, owner := g.Key, g.Owner
		if w, known := want[k]; !ok || !known || w != owner {
			t.Fatalf("key %v of %d: %v", k, owner, ok)
		}
		delete(want, k)
		if _, err := tab.Resolve(k, owner, RemoteRead, 0, 8); !errors.Is(err, ErrKey) {
			t.Errorf("access through a revoked key: %v", err)
		}
	}
	if _, ok := tab.RevokeNext(r); ok || r.Granted() || tab.Len() != 0 {
		t.Error("there is one more")
	}
}

// Grants that share a set of the cache evict each other and are found again; a revoked one is not, whether it is there
// or not; and another one's key never opens it.
func TestHotGrants(t *testing.T) {
	const n = 3 * maxHot
	tab := NewTable(rand.Reader)
	mem := make([]byte, n)
	r := &Region{Mem: Wrap(mem)}
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = mustGrant(t, tab, r, uint64(i), RemoteWrite, uint64(i), 1)
	}
	resolve := func(i int) error {
		at, err := tab.Resolve(keys[i], uint64(i), RemoteWrite, 0, 1)
		if err == nil && &at.Bytes[0] != &mem[i] {
			t.Fatalf("grant %d reaches other bytes", i)
		}
		return err
	}
	for turn := range 2 {
		for i := range keys {
			if err := resolve(i); err != nil {
				t.Fatalf("turn %d, grant %d: %v", turn, i, err)
			}
		}
	}
	if s := tab.Stats(); s.Evicted < n || s.Misses < n || len(tab.cache.tags) != maxHot {
		t.Errorf("%+v of %d entries", s, len(tab.cache.tags))
	}
	for i := range keys {
		if i%2 == 0 {
			resolve(i) // it is in the cache, and the latest
		}
		if tab.Revoke(keys[i]); resolve(i) != ErrKey {
			t.Fatalf("grant %d is found after it was revoked", i)
		}
	}
	if tab.Len() != 0 || tab.slab.chunks != nil || len(tab.places) != 1 {
		t.Errorf("%d grants, %d chunks left", tab.Len(), len(tab.slab.chunks))
	}
	for _, k := range []Key{0, ^Key(0)} { // the keys that the cache's empty tags look like
		if _, err := tab.Resolve(k, 0, RemoteWrite, 0, 0); err != ErrKey {
			t.Errorf("key %#x: %v, want ErrKey", uint64(k), err)
		}
	}
}
