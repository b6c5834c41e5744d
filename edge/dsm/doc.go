// Package dsm is shared memory of several processes, the ranks of a run, which may be on different hosts. Each rank
// declares what it reads and writes; package edge moves the bytes by reads, writes and atomics of remote memory alone,
// so that no rank ever serves another (docs/DSM.md; home-based lazy release consistency as in GeNIMA).
//
//	err := dsm.Run(ctx, dsm.Config{}, func(m *dsm.Memory) error { // rank and ranks from EDGE_DSM
//		a := dsm.Alloc[float64](m, 1<<20, dsm.Blocks) // the same calls in the same order on all ranks
//		sum := dsm.Alloc[float64](m, 1, dsm.At(0))
//		lo, hi := m.Share(a.Len())
//		w := a.Write(lo, hi) // until my next Unlock or Barrier
//		for i := range w {
//			w[i] = f(lo + i)
//		}
//		m.Barrier()
//		s := 0.0
//		for _, v := range a.Read(max(lo-1, 0), hi) { // until my next Lock or Barrier
//			s += v
//		}
//		m.Lock(0)
//		sum.Write(0, 1)[0] += s
//		m.Unlock(0)
//		m.Barrier()
//		return nil
//	})
//
// # What a rank sees
//
// Two accesses of different ranks to the same bytes, one of them a write, must be ordered by locks or barriers. What a
// rank wrote is seen by all who come after it in that order. Elements are not torn: ranks may write neighbouring
// elements of one page at the same time.
//
// # Failure
//
// When a rank fails, is killed, or cannot be reached, Run of every other rank returns an error that names it. Nothing
// of the shared memory survives. Methods of Memory and Array do not return errors: they end the function that Run
// called, by a panic that Run recovers.
package dsm
