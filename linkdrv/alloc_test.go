package linkdrv

import "testing"

// TestNoAllocations: neither direction allocates, with frames or without.
func TestNoAllocations(t *testing.T) {
	kinds(t, []int{1500, 9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		frames := make([]TxFrame, RecvBatch)
		for i := range frames {
			frames[i] = TxFrame{Head: header(tx, rx, 64), Bulk: make([]byte, 1000), Tail: make([]byte, 10),
				Joined: true}
		}
		dst := make([][]byte, RecvBatch)
		total := 0
		round := func() {
			if n, err := tx.Send(frames); n != len(frames) || err != nil {
				t.Fatal(n, err)
			}
			for range 2 { // the second finds nothing
				n, err := rx.Recv(dst)
				must(t, err)
				total += n
			}
		}
		if a := testing.AllocsPerRun(200, round); a != 0 {
			t.Errorf("%v allocations per round of %d frames", a, len(frames))
		}
		idle := func() { // long enough to ask the socket for errors
			for range 2 * errorEvery {
				if _, err := rx.Recv(dst); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a := testing.AllocsPerRun(10, idle); a != 0 {
			t.Errorf("%v allocations when idle", a)
		}
		if total == 0 {
			t.Error("nothing was received")
		}
		s, _ := tx.Stats()
		if perCall := float64(s.Sent) / float64(s.SendCalls); perCall != RecvBatch {
			t.Errorf("%v frames per system call, want %d", perCall, RecvBatch)
		}
	})
}
