package sim

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// A node whose link is the bottleneck sends as much for a user with one peer as for one with many, and for one who
// shares a peer with him.
func TestTurnsOfUsers(t *testing.T) {
	for _, c := range []struct {
		name  string
		peers [2][]int // of each user
	}{
		{"one peer and four others", [2][]int{{1}, {2, 3, 4, 5}}},
		{"one peer and the same among five", [2][]int{{1}, {1, 2, 3, 4, 5}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const size, deep = 64 << 10, 64
			w := New(Options{Seed: 1, Nodes: 6, MTU: 9000, Slots: 1024})
			defer w.Stop()
			busy := w.Nodes[0]
			type stream struct {
				op   engine.Op
				user int
			}
			streams := map[engine.ConnID]*stream{}
			var order []engine.ConnID
			for user, peers := range c.peers {
				for _, p := range peers {
					ca, cb, err := w.Connect(busy, w.Nodes[p],
						engine.DialOptions{Owner: engine.Owner{User: uint64(user) + 1}})
					must(t, err)
					key, err := w.Nodes[p].Grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, size))},
						uint64(cb), regmem.RemoteWrite, 0, size)
					must(t, err)
					streams[ca] = &stream{op: engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, size)},
						user: user}
					order = append(order, ca)
				}
			}
			must(t, w.Rest(300*time.Millisecond))
			var done [2]int
			busy.Handle = func(ev *engine.Event) {
				if s := streams[ev.Conn]; s != nil && ev.Kind == engine.EvComplete {
					done[s.user]++
					busy.E.Submit(w.Now, ev.Conn, &s.op)
				}
			}
			for range deep {
				for _, id := range order {
					busy.E.Submit(w.Now, id, &streams[id].op)
				}
			}
			turns(t, w, busy, 1000)
			if share := float64(done[0]) / float64(done[0]+done[1]); done[0]+done[1] < 400 || share < 0.43 ||
				share > 0.57 {
				t.Errorf("%d and %d writes: a share of %.3f, want 0.5", done[0], done[1], share)
			}
		})
	}
}
