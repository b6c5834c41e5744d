package regmem

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

type cacheKey struct {
	proc uint32
	line uint64
}

// TestCacheModel: what is found is what was filled last for that process and page, and a set keeps the lines that were
// used last.
func TestCacheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := CacheConfig{Entries: 64, Ways: 1 << rapid.IntRange(0, 2).Draw(t, "ways"),
			Line: 1 << rapid.IntRange(0, 3).Draw(t, "line"), Offset: rapid.Bool().Draw(t, "offset")}
		c, err := NewCache[string](cfg)
		if err != nil {
			t.Fatal(err)
		}
		type key = cacheKey
		sets := map[int][]key{} // least recently used first
		procs, pages := rapid.Uint32Range(0, 3), rapid.Uint64Range(0, 200)
		touch := func(set int, k key) (was bool) {
			for i, have := range sets[set] {
				if have == k {
					sets[set] = append(append(sets[set][:i:i], sets[set][i+1:]...), k)
					return true
				}
			}
			return false
		}
		t.Repeat(map[string]func(*rapid.T){
			"use": func(t *rapid.T) {
				proc, page := procs.Draw(t, "proc"), pages.Draw(t, "page")
				k := key{proc, page / uint64(cfg.Line)}
				set, _ := c.set(proc, k.line)
				v, ok := c.Lookup(proc, page)
				if want := touch(set, k); ok != want {
					t.Fatalf("process %d page %d: found %t", proc, page, ok)
				}
				if ok {
					if v != fmt.Sprint(proc, page) {
						t.Fatalf("process %d page %d has %q", proc, page, v)
					}
					return
				}
				values, old, left := c.Fill(proc, page)
				for i := range values {
					values[i] = fmt.Sprint(proc, k.line*uint64(cfg.Line)+uint64(i))
				}
				if left != (len(sets[set]) == cfg.Ways) {
					t.Fatalf("a line left: %t, of %d in %d ways", left, len(sets[set]), cfg.Ways)
				}
				if left {
					if lru := sets[set][0]; old != (Evicted{lru.proc, lru.line * uint64(cfg.Line)}) {
						t.Fatalf("%+v left, the least recently used is %+v", old, lru)
					}
					sets[set] = sets[set][1:]
				}
				sets[set] = append(sets[set], k)
			},
			"invalidate": func(t *rapid.T) {
				proc, page := procs.Draw(t, "proc"), pages.Draw(t, "page")
				k := key{proc, page / uint64(cfg.Line)}
				set, _ := c.set(proc, k.line)
				was := touch(set, k)
				if was {
					sets[set] = sets[set][:len(sets[set])-1]
				}
				if c.Contains(proc, page) != was || c.Invalidate(proc, page) != was || c.Contains(proc, page) {
					t.Fatalf("process %d page %d: invalidated %t", proc, page, !was)
				}
			},
		})
	})
}

// TestOffset: four processes use the same pages. Without the offset they meet in one set; with it they do not (UTLB
// §6.3, "direct-nohash").
func TestOffset(t *testing.T) {
	rate := func(offset bool) float64 {
		c, err := NewCache[int](CacheConfig{Entries: 1024, Ways: 1, Line: 1, Offset: offset})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			for page := range uint64(128) {
				for proc := range uint32(4) {
					if _, ok := c.Lookup(proc, page); !ok {
						c.Fill(proc, page)
					}
				}
			}
		}
		return float64(c.Misses) / float64(c.Hits+c.Misses)
	}
	if plain, with := rate(false), rate(true); plain < 0.95 || with > 0.30 {
		t.Errorf("misses without an offset %.2f, with it %.2f", plain, with)
	}
}

func TestCacheConfig(t *testing.T) {
	for _, cfg := range []CacheConfig{{}, {Entries: 1000, Ways: 1, Line: 1}, {Entries: 8, Ways: 4, Line: 4},
		{Entries: 8, Ways: 3, Line: 1}, {Entries: 8, Ways: 1}} {
		if _, err := NewCache[int](cfg); err == nil {
			t.Errorf("%+v was made", cfg)
		}
	}
}

func BenchmarkCacheLookup(b *testing.B) {
	for _, ways := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(ways, "ways"), func(b *testing.B) {
			c, _ := NewCache[uint64](CacheConfig{Entries: 8192, Ways: ways, Line: 1, Offset: true})
			for page := range uint64(4096) {
				c.Fill(1, page)
			}
			x := uint64(1)
			for b.Loop() {
				x = x*6364136223846793005 + 1442695040888963407
				c.Lookup(1, x>>52)
			}
		})
	}
}
