package edge_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync/atomic"

	"multiedge/edge"
)

// A key-value store whose owner alone writes, and which clients read without asking it. The table is slots of 64 bytes,
// 8 words: a version, the key's hash, and a value of 48 bytes. A version is odd while the owner changes its slot, so a
// reader that finds the same even version before and after the value has a whole one (docs/MEMORY.md).
const (
	kvSlot  = 64
	kvSlots = 128
	kvValue = kvSlot - 16
)

var kvSeed = maphash.MakeSeed() // clients get it from the owner

func kvHash(key string) uint64 { return maphash.String(kvSeed, key) | 1 } // 0 is a free slot

// kvStore is the owner's side.
type kvStore struct{ mem []byte }

func (s *kvStore) word(slot, i int) *atomic.Uint64 { return word64(s.mem, slot*kvSlot+8*i) }

// put changes or adds a key. One goroutine at a time may do so.
func (s *kvStore) put(key, value string) {
	h := kvHash(key)
	slot := int(h % kvSlots)
	for ; s.word(slot, 1).Load() != 0 && s.word(slot, 1).Load() != h; slot = (slot + 1) % kvSlots {
	}
	var b [kvValue]byte
	copy(b[:], value)
	version := s.word(slot, 0)
	version.Add(1)
	s.word(slot, 1).Store(h)
	for i := range kvValue / 8 {
		s.word(slot, 2+i).Store(binary.NativeEndian.Uint64(b[8*i:]))
	}
	version.Add(1)
}

// kvReader is a client's side: the imported table, and memory for one slot and the versions before and after.
type kvReader struct {
	table *edge.RemoteRegion
	local *edge.Region
}

// get reads a key: three reads that leave at once, for each slot that is looked at.
func (r *kvReader) get(ctx context.Context, key string) (string, bool) {
	h := kvHash(key)
	b := r.local.Bytes()
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	const before, after = kvSlot, kvSlot + 8
	for slot := int(h % kvSlots); ; {
		at := slot * kvSlot
		var ops [3]edge.Op
		read := func(off, to, n int) edge.Work {
			return edge.Work{Kind: edge.Read, Flags: edge.BackwardFence, Local: r.local, LocalOff: to, Len: n,
				Remote: r.table, RemoteOff: off}
		}
		_, err := r.table.Conn().PostBatch([]edge.Work{
			read(at, before, 8), read(at, 0, kvSlot), read(at, after, 8),
		}, ops[:])
		check(err)
		check(edge.WaitAll(ctx, ops[:]))
		switch {
		case word(before) != word(after) || word(before)%2 == 1: // it changed meanwhile: once more
		case word(8) == h:
			value := b[16:kvSlot]
			for n, c := range value {
				if c == 0 {
					value = value[:n]
					break
				}
			}
			return string(value), true
		case word(8) == 0:
			return "", false
		default:
			slot = (slot + 1) % kvSlots
		}
	}
}

// A key-value store that is read by one-sided reads: the owner's processor does nothing for them.
func Example_keyValueStore() {
	ctx := context.Background()
	fab := edge.NewFabric()
	defer fab.Close()
	owner, client := open(fab, "owner"), open(fab, "client")

	mem, err := owner.Register(kvSlots * kvSlot)
	check(err)
	_, err = owner.Export(ctx, mem, "kv", edge.RemoteRead)
	check(err)
	store := &kvStore{mem.Bytes()}
	store.put("colour", "green")
	store.put("shape", "round")

	table, err := client.Import(ctx, "owner", "kv")
	check(err)
	local, err := client.Register(4096)
	check(err)
	r := &kvReader{table, local}
	fmt.Println(r.get(ctx, "colour"))
	fmt.Println(r.get(ctx, "taste"))

	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() { // the value changes all the time, and what is read is the one or the other
		defer close(stopped)
		for i := 0; !stop.Load(); i++ {
			store.put("light", [2]string{"off, off, off, off, off", "on, on, on, on, on, on"}[i%2])
		}
	}()
	seen := map[string]bool{}
	for len(seen) < 2 {
		for range 1000 {
			if v, ok := r.get(ctx, "light"); ok {
				seen[v] = true
			}
		}
	}
	stop.Store(true)
	<-stopped
	fmt.Println(slices.Sorted(maps.Keys(seen)))
	// Output:
	// green true
	//  false
	// [off, off, off, off, off on, on, on, on, on, on]
}
