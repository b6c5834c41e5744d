package fair

import (
	"math/rand/v2"
	"testing"
)

// sender is a connection that always has something to send.
type sender struct {
	share Share[*sender]
	owner Owner
	sent  int
}

// A user gets as much as another one, however many clients and connections either has, and whatever their frames are
// long; of one user each client, and of one client each connection.
func TestTurnsAreFair(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tree, all := Tree[*sender]{Quantum: 9000}, Users{}
		var senders []*sender
		for user := range uint64(3) {
			for client := range 1 + user {
				for range 1 + rng.IntN(5) {
					s := &sender{owner: Owner{user, client}}
					tree.Join(s, &s.share, s.owner, all)
					tree.Add(&s.share)
					senders = append(senders, s)
				}
			}
		}
		const rounds = 60_000
		total := 0
		for range rounds {
			s := tree.Front()
			n := 1 + rng.IntN(9000)
			tree.Spend(&s.share, n)
			s.sent += n
			total += n
		}
		users, clients, most := map[uint64]int{}, map[Owner]int{}, map[Owner]int{}
		for _, s := range senders {
			users[s.owner.User] += s.sent
			clients[s.owner] += s.sent
			most[s.owner] = max(most[s.owner], s.sent)
		}
		near := func(got, want int) bool { return got > want*97/100 && got < want*103/100 }
		for u, n := range users {
			if !near(n, total/3) {
				t.Errorf("seed %d: user %d sent %d of %d bytes", seed, u, n, total)
			}
		}
		for o, n := range clients {
			if !near(n, users[o.User]/int(o.User+1)) {
				t.Errorf("seed %d: client %v sent %d of its user's %d bytes", seed, o, n, users[o.User])
			}
		}
		for _, s := range senders {
			if !near(s.sent, most[s.owner]) {
				t.Errorf("seed %d: of client %v one sent %d bytes, another %d", seed, s.owner, s.sent, most[s.owner])
			}
		}
	}
}

// What comes and goes in any order leaves nothing.
func TestNothingStays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tree Tree[*sender]
	all := Users{}
	in := map[*sender]bool{}
	for i := range 20_000 {
		if len(in) == 0 || rng.IntN(2) == 0 && i < 19_000 {
			s := &sender{owner: Owner{rng.Uint64N(4), rng.Uint64N(3)}}
			tree.Join(s, &s.share, s.owner, all)
			in[s] = true
		}
		for s := range in { // any
			switch rng.IntN(3) {
			case 0:
				if !s.share.Waits {
					tree.Add(&s.share)
				}
			case 1:
				tree.Remove(&s.share)
			default:
				tree.Leave(&s.share, s.owner, all)
				delete(in, s)
			}
			break
		}
		waiting := 0
		for s := range in {
			if s.share.Waits {
				waiting++
			}
		}
		if f := tree.Front(); tree.Waiting != waiting || (f == nil) != (waiting == 0) || f != nil && !f.share.Waits {
			t.Fatalf("step %d: %d wait, counted %d, front %v", i, waiting, tree.Waiting, f)
		}
	}
	for s := range in {
		tree.Leave(&s.share, s.owner, all)
	}
	if len(all)+len(tree.users)+len(tree.clients)+tree.Waiting != 0 {
		t.Errorf("left: %v, %v, %v, %d", all, tree.users, tree.clients, tree.Waiting)
	}
}
