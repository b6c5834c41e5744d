package faults

import (
	"os"
	"strings"
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
	t.admitUsers()
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
	t.all("clients", uint64(t.status(0).Clients), uint64(n))
	share := least / max(all/float64(n), 1)
	t.row.Measured["all, MB/s"], t.row.Measured["slowest user's share of the mean"] = all/1e6, share
	t.check("each moves at least half of the mean", share >= 0.5, "one moves %.2f of the mean of %.2f MB/s", share,
		all/1e6/float64(n))
}

func loneUser(t *Trial) {
	t.admitUsers()
	n := t.many(100, 40)
	ws := t.users(func() {
		t.userAt(firstTenant, 1, 64)
		t.userAt(firstTenant+1, n, 8)
	})
	t.injected("connections of the other user", uint64(n))
	t.all("connections", uint64(t.status(0).Connections), uint64(n)+1)
	t.moves(ws, "both")
}

// admitUsers lets all users come to the daemons' sockets, or ends a scenario that cannot run here.
func (t *Trial) admitUsers() {
	if oneUser() {
		kit.Fail("there are no other users in this user namespace: run as root")
	}
	kit.Check(os.Chmod(t.cluster.Dir(), 0o711))
}

// moves judges the share of all that the first of some users moves.
func (t *Trial) moves(ws []*Window, all string) {
	sum := 0.0
	for _, w := range ws {
		sum += w.rate()
	}
	share := ws[0].rate() / max(sum, 1)
	t.row.Measured[all+", MB/s"], t.row.Measured["share of the lone user"] = sum/1e6, share
	t.check("the lone user moves 45 % at least", share >= 0.45, "a share of %.2f of %.1f MB/s", share, sum/1e6)
}

// all enters a count that must equal what was injected.
func (t *Trial) all(what string, counted, injected uint64) {
	t.counted(what, counted)
	t.agrees(what, counted, injected, 0)
}

// What one user leaves to another, by whatever number of clients, requests and user numbers he takes.

// usageClients is how many clients of one user request the usage of memory. Each has one request outstanding, which
// takes thousands of pieces.
const usageClients = 32

// subordinates is the number of subordinate users whom one user has. Their numbers are in no file of the host: they
// share an account, as those that a directory service grants do.
const (
	subordinates     = 12
	firstSubordinate = 700_000
)

func shareScenarios() []Scenario {
	return []Scenario{
		{Name: "a user's 32 clients ask about spaces of 500 GiB", Group: Adversary, Short: true,
			Criteria: "another user of the daemon keeps 90 % of the rate of short operations that it has beside a " +
				"user who only computes; the requests are answered",
			Set: func(s *kit.ClusterSpec) {
				s.Config = "mode = \"0666\"\n" + s.Config
				s.Limits += "pinned = \"256MiB\"\n"
			},
			Run: askedWithoutEnd},
		{Name: "a lone user beside another's twelve subordinate users", Group: Load, Short: true, Set: forAllUsers,
			Criteria: "the lone user moves at least 45 %", Run: besideSubordinates},
	}
}

func askedWithoutEnd(t *Trial) {
	t.admitUsers()
	c := t.pair(MixRandom, 1, 1)
	clients := 0
	x, sum := t.besideUsers(c, "usage", 1, usageClients, func() { clients = max(clients, t.status(0).Clients-1) })
	keeps := operations(x.with) / max(operations(x.clean), 1)
	t.injected("clients that ask", usageClients)
	t.all("clients at the daemon", uint64(clients), usageClients)
	t.row.Measured["requests answered"] = float64(sum.Completed)
	t.unfailed(x.all()...)
	t.check("the requests are answered", sum.Completed > 0, "none is")
	t.share("others keep", "another user keeps 90 % of its rate", keeps, 0.9)
}

// operations is the median rate of the windows, in operations per second.
func operations(ws []*Window) float64 {
	return medianOf(ws, func(w *Window) float64 { return float64(w.Ops) / max(w.Seconds, 1e-9) })
}

func besideSubordinates(t *Trial) {
	t.admitUsers()
	ws := t.users(func() {
		t.userAt(firstTenant, 1, 64)
		for i := range subordinates {
			t.userAt(firstSubordinate+i, 1, 16)
		}
	})
	t.injected("subordinate users", subordinates)
	t.all("clients", uint64(t.status(0).Clients), subordinates+1)
	t.moves(ws, "all")
}
