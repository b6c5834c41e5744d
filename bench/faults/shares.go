package faults

import (
	"os"

	"multiedge/bench/hostile"
	"multiedge/bench/kit"
)

// What one user leaves to another, by whatever number of clients, requests and user numbers he takes.

// usageClients are the clients of the user who asks: each has a request outstanding, which takes thousands of pieces.
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
	t.needUsers()
	kit.Check(os.Chmod(t.cluster.Dir(), 0o711)) // the socket is there, for all users
	c := t.pair(MixRandom, 1, 1)
	var x turns
	var sum hostile.Report
	clients := 0
	for range t.many(turnsJudged, 1) {
		burn := t.misuse(c, "burn", 1, 1, func() {}, &hostile.Report{})
		with := t.misuse(c, "usage", 1, usageClients, func() { clients = max(clients, t.status(0).Clients-1) }, &sum)
		x.clean, x.with = append(x.clean, burn), append(x.with, with)
	}
	keeps := operations(x.with) / max(operations(x.clean), 1)
	t.injected("clients that ask", usageClients)
	t.counted("clients at the daemon", uint64(clients))
	t.agrees("clients at the daemon", uint64(clients), usageClients, 0)
	t.row.Measured["requests answered"], t.row.Measured["others keep"] = float64(sum.Completed), keeps
	t.unfailed(x.all()...)
	t.check("the requests are answered", sum.Completed > 0, "none is")
	t.speed("another user keeps 90 % of its rate", keeps >= 0.9, "%.0f %%", 100*keeps)
}

// operations is the median rate of the windows, in operations per second.
func operations(ws []*Window) float64 {
	return medianOf(ws, func(w *Window) float64 { return float64(w.Ops) / max(w.Seconds, 1e-9) })
}

func besideSubordinates(t *Trial) {
	t.needUsers()
	ws := t.users(func() {
		t.userAt(firstTenant, 1, 64)
		for i := range subordinates {
			t.userAt(firstSubordinate+i, 1, 16)
		}
	})
	t.injected("subordinate users", subordinates)
	st := t.status(0)
	t.counted("clients", uint64(st.Clients))
	t.agrees("clients", uint64(st.Clients), subordinates+1, 0)
	all := 0.0
	for _, w := range ws {
		all += w.rate()
	}
	share := ws[0].rate() / max(all, 1)
	t.row.Measured["all, MB/s"], t.row.Measured["share of the lone user"] = all/1e6, share
	t.check("the lone user moves 45 % at least", share >= 0.45, "a share of %.2f of %.1f MB/s", share, all/1e6)
}
