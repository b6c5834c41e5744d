package dsm_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"multiedge/edge/dsm"
	"multiedge/edge/fabric"
)

// Three ranks add up an array in parts. Here they are goroutines on hosts in memory; processes on different hosts pass
// dsm.Config{} and have EDGE_DSM in their environment.
func ExampleRun() {
	fab := fabric.New()
	defer fab.Close()
	const ranks = 3
	var wg sync.WaitGroup
	for rank := range ranks {
		d, err := fab.Open(fmt.Sprintf("host%d", rank))
		if err != nil {
			log.Fatal(err)
		}
		c := dsm.Config{Name: "sum", Rank: rank, Ranks: ranks, Root: "host0", Device: d, Size: 1 << 20}
		wg.Go(func() {
			if err := dsm.Run(context.Background(), c, addUp); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	// Output:
	// the sum is 499500
}

// addUp is what each rank does.
func addUp(m *dsm.Memory) error {
	a := dsm.Alloc[int](m, 1000, dsm.Turns)
	total := dsm.Alloc[int](m, 1, dsm.At(0))
	if m.Rank() == 0 {
		for i, w := 0, a.Own(0, 1000); i < len(w); i++ {
			w[i] = i
		}
	}
	m.Barrier()
	sum := 0
	lo, hi := m.Share(a.Len())
	for _, v := range a.Read(lo, hi) {
		sum += v
	}
	m.Lock(0)
	total.Set(0, total.At(0)+sum)
	m.Unlock(0)
	m.Barrier()
	if m.Rank() == 1 {
		fmt.Println("the sum is", total.At(0))
	}
	return nil
}
