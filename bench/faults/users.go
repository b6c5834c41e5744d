package faults

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"multiedge/bench/kit"
)

// firstTenant is the number of the first user of these scenarios. Nobody else on the host has these numbers.
const firstTenant = 40_000

func userScenarios() []Scenario {
	return []Scenario{
		{Name: "a hundred users at once", Group: Load, Set: forAllUsers, Run: manyUsers,
			Criteria: "no operation fails; each user moves at least half of the mean, though one in ten has twenty " +
				"connections"},
		{Name: "a lone user beside another's hundred connections", Group: Load,
			Criteria: "the lone user moves at least 45 %",
			Short:    true, Set: forAllUsers, Run: loneUser},
	}
}

// forAllUsers admits every user of the host to the daemons, over a wire that two processors can fill.
func forAllUsers(s *kit.ClusterSpec) {
	shaped(s)
	s.Config += "mode = \"0666\"\n"
}

// becomeUser drops this process's privileges for those of a user; 0 keeps them.
func becomeUser(uid int) error {
	if uid == 0 {
		return nil
	}
	err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid))
	if err != nil {
		return fmt.Errorf("becoming user %d: %w", uid, err)
	}
	return nil
}

// oneUser reports whether only one user exists here: in a user namespace that maps no others.
func oneUser() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	return err != nil || len(f) != 3 || f[2] == "1"
}

// userAt starts a client of a user in host 0.
func (t *Trial) userAt(uid, conns, depth int) *agent {
	return t.client(0, Job{Peer: "host1", Service: "store", Mix: MixBulk, Conns: conns, Depth: depth,
		Deadline: userDeadline, UID: uid})
}

// userDeadline is the time by which an operation must have ended beside a hundred other users.
const userDeadline = 30 * time.Second

// users calls start to start the clients, and returns what each moved in the same time.
func (t *Trial) users(start func()) (ws []*Window) {
	kit.Check(os.Chmod(t.cluster.Dir(), 0o777)) // the users write their claims there
	t.serve(1, "store")
	start()
	for _, a := range t.clients {
		t.flowing(a, patience)
	}
	for _, a := range t.clients {
		t.mark(a, "begin")
	}
	t.pause(t.span(10*time.Second, 2*time.Second))
	for _, a := range t.clients {
		ws = append(ws, t.mark(a, "together"))
	}
	t.unfailed(ws...)
	return ws
}

// One user in greedyEach has greedyConns connections. If turns were by connection, the others would move a third of the
// mean.
const (
	greedyEach  = 10
	greedyConns = 20
)

func manyUsers(t *Trial) {
	t.needUsers()
	n := t.many(100, 10)
	ws := t.users(func() {
		for k := range n {
			conns, depth := 1, 4
			if k%greedyEach == 0 {
				conns, depth = greedyConns, 1
			}
			t.userAt(firstTenant+k, conns, depth)
		}
	})
	t.injected("users", uint64(n))
	all, least := 0.0, ws[0].rate()
	for _, w := range ws {
		all += w.rate()
		least = min(least, w.rate())
	}
	st := t.status(0)
	t.counted("clients", uint64(st.Clients))
	t.agrees("clients", uint64(st.Clients), uint64(n), 0)
	share := least / max(all/float64(n), 1)
	t.row.Measured["all, MB/s"], t.row.Measured["slowest user's share of the mean"] = all/1e6, share
	t.check("each moves at least half of the mean", share >= 0.5, "one moves %.2f of the mean of %.2f MB/s", share,
		all/1e6/float64(n))
}

func loneUser(t *Trial) {
	t.needUsers()
	n := t.many(100, 40)
	ws := t.users(func() {
		t.userAt(firstTenant, 1, 64)
		t.userAt(firstTenant+1, n, 8)
	})
	t.injected("connections of the other user", uint64(n))
	st := t.status(0)
	t.counted("connections", uint64(st.Connections))
	t.agrees("connections", uint64(st.Connections), uint64(n)+1, 0)
	lone, other := ws[0].rate(), ws[1].rate()
	share := lone / max(lone+other, 1)
	t.row.Measured["both, MB/s"], t.row.Measured["share of the lone user"] = (lone+other)/1e6, share
	t.check("the lone user moves 45 % at least", share >= 0.45, "a share of %.2f of %.1f MB/s", share, (lone+other)/1e6)
}

// needUsers ends a scenario that cannot run here.
func (t *Trial) needUsers() {
	if oneUser() {
		kit.Fail("there are no other users in this user namespace: run as root")
	}
}
