package shard

import (
	"math/rand/v2"
	"testing"

	"multiedge/regmem"
)

// Spaces that begin to starve, end, and have turns in any order are each there once, and each has its turn.
func TestStarvingComeAndGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const users, each = 5, 7
	var q starving
	there := map[*regmem.Space]uint32{}
	all := make([]*regmem.Space, users*each)
	for i := range all {
		all[i] = &regmem.Space{}
	}
	for range 5000 {
		i := rng.IntN(len(all))
		switch user := uint32(i % users); rng.IntN(5) {
		case 0, 1:
			q.add(user, all[i])
			there[all[i]] = user
		case 2, 3:
			q.forget(all[i])
			delete(there, all[i])
		case 4:
			if q.n() > 0 {
				q.turn(func(space *regmem.Space) bool {
					if _, ok := there[space]; !ok {
						t.Fatal("a turn of a space that does not starve")
					}
					delete(there, space)
					return false
				})
			}
		}
		if q.n() != len(there) || len(q.users) != len(q.byID) {
			t.Fatalf("%d spaces of %d users, want %d; %d by number", q.n(), len(q.users), len(there), len(q.byID))
		}
	}
	had := map[*regmem.Space]bool{}
	for range users * each * each { // users with few spaces have turns again and again
		if q.n() > 0 {
			q.turn(func(space *regmem.Space) bool { had[space] = true; return true })
		}
	}
	for space, user := range there {
		if !had[space] || q.places[space].user != q.byID[user] {
			t.Errorf("a space of user %d had no turn, or is another's", user)
		}
	}
}
