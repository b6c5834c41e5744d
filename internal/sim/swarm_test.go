package sim

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 4000, "seeds that TestSwarm runs, besides those of testdata/seeds.txt")
	live  = flag.Int("live", 500, "seeds that TestLiveness runs, besides those")
	first = flag.Uint64("first", 1, "the first of them")
	only  = flag.Uint64("seed", 0, "run this seed alone, print every frame and event, and check all memory after each")
)

//go:embed testdata/seeds.txt
var committed string

// TestSwarm runs every seed that ever failed, then as many more as -seeds says, on all processors.
func TestSwarm(t *testing.T) { testSeeds(t, "TestSwarm", *seeds, Watch{}) }

// TestLiveness runs them in the liveness mode: once the network is healed, a new connection between any two nodes works
// within LiveTime.
func TestLiveness(t *testing.T) { testSeeds(t, "TestLiveness", *live, Watch{Live: true}) }

func testSeeds(t *testing.T, test string, seeds int, watch Watch) {
	if *only != 0 {
		out := bufio.NewWriter(os.Stdout)
		watch.Trace, watch.Full, watch.Log = true, true, out
		r, err := Swarm(*only, watch)
		out.Flush()
		t.Logf("%+v", r)
		must(t, err)
		return
	}
	before := runtime.NumGoroutine()
	list := failedOnce(t)
	for i := range seeds {
		list = append(list, *first+uint64(i))
	}
	var next, failed atomic.Int64
	var total sums
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)) && failed.Load() < 10; i = next.Add(1) - 1 {
				r, err := Swarm(list[i], watch)
				total.add(&r)
				if err != nil {
					failed.Add(1)
					t.Errorf("%v\nagain: go test ./internal/sim -run %s -seed %d; then add it to testdata/seeds.txt",
						err, test, list[i])
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds: %s", len(list), total.String())
	// what happens to few connections shows in many seeds alone
	enough := map[string]int{"Late": 2000, "Worn": 50_000, "QueuesDropped": 1000,
		"EndsByWear": 50_000, "EndsBySilence": 1000}
	for name, n := range total.n {
		if n == 0 && seeds >= max(200, enough[name]) {
			t.Errorf("%s: none in %d seeds", name, len(list))
		}
	}
	if worn := total.n["Worn"]; worn > uint64(len(list)/1000+2) {
		t.Errorf("%d sessions ended since their keys wore out: exchanges do not end", worn)
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, at the start there were %d", runtime.NumGoroutine(), before)
		}
	}
}

// TestSwarmBefore runs the seeds that ever failed without what the mix has gained since the first of them were
// committed: in the worlds they failed in.
func TestSwarmBefore(t *testing.T) {
	for _, seed := range failedOnce(t) {
		o, m := drawMix(seed)
		if o.IP.Lanes > 0 {
			o.IP, m.ip = IP{}, ipMix{}
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without IP links: %v", err)
			}
		}
		if o.Together > 0 {
			o.Together = 0
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("with each frame by itself: %v", err)
			}
		}
		if m.pools.nodes != 0 {
			m.pools = poolMix{}
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without shared receive queues: %v", err)
			}
		}
		if m.early {
			m.early = false
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without buffers before accept: %v", err)
			}
		}
		if m.impatient {
			m.impatient = false
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without impatient sends: %v", err)
			}
		}
		if m.composes {
			m.composes = false
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without composed messages: %v", err)
			}
		}
		if o.Misses.Delay > 0 {
			o.Misses = Misses{}
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without misses: %v", err)
			}
		}
		if m.recablings+m.strangers > 0 {
			m.recablings, m.strangers = 0, 0
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without moves of cables: %v", err)
			}
		}
		if o.Joins != 0 {
			o.Joins, m.walls = 0, 0
			if _, err := runMix(seed, o, m, Watch{}); err != nil {
				t.Errorf("without moves and datagrams: %v", err)
			}
		}
		if m.narrowings == 0 {
			continue // this test or TestSwarm ran that world
		}
		m.narrowings = 0
		if _, err := runMix(seed, o, m, Watch{}); err != nil {
			t.Errorf("without moves, datagrams and narrowings: %v", err)
		}
	}
}

// failedOnce reads the committed seeds.
func failedOnce(t *testing.T) (list []uint64) {
	for i, line := range strings.Split(committed, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds.txt:%d: %v; want a number, then # and what it found", i+1, err)
		}
		list = append(list, seed)
	}
	return list
}

// sums adds up the numbers of reports: a fault that never happens tests nothing (faults.md, U4).
type sums struct {
	sync.Mutex
	n map[string]uint64
}

func (s *sums) add(r *Report) {
	s.Lock()
	defer s.Unlock()
	if s.n == nil {
		s.n = map[string]uint64{}
	}
	s.walk(reflect.ValueOf(*r))
}

func (s *sums) walk(v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "Hash" || name == "Virtual" || name == "Options":
		case f.Kind() == reflect.Struct:
			s.walk(f)
		case f.CanUint():
			s.n[name] += f.Uint()
		case f.CanInt():
			s.n[name] += uint64(f.Int())
		}
	}
}

func (s *sums) String() string { return fmt.Sprint(s.n) }
