package faults

import (
	"context"
	"os"

	"multiedge/bench"
	"multiedge/bench/hostile"
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
			Set: func(s *bench.ClusterSpec) {
				s.Config = "mode = \"0666\"\n" + s.Config
				s.Limits += "pinned = \"256MiB\"\n"
			},
			Run: askedWithoutEnd},
		{Name: "a lone user beside another's twelve subordinate users", Group: Load, Short: true, Set: forAllUsers,
			Criteria: "the lone user moves at least 45 %", Run: besideSubordinates},
	}
}

func askedWithoutEnd(ctx context.Context, t *Trial) error {
	if oneUser() {
		return errOneUser
	}
	if err := os.Chmod(t.cluster.Dir(), 0o711); err != nil { // the socket is there, for all users
		return err
	}
	c, err := t.pair(ctx, MixRandom, 1, 1)
	if err != nil {
		return err
	}
	var x turns
	var sum hostile.Report
	clients := 0
	for range t.many(turnsJudged, 1) {
		burn, err := t.beset(ctx, c, "burn", 1, 1, func() {}, &hostile.Report{})
		if err != nil {
			return err
		}
		with, err := t.beset(ctx, c, "usage", 1, usageClients, func() {
			if st, err := t.status(ctx, 0); err == nil {
				clients = max(clients, st.Clients-1)
			}
		}, &sum)
		if err != nil {
			return err
		}
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
	return nil
}

// operations is the median rate of the windows, in operations per second.
func operations(ws []*Window) float64 {
	return medianOf(ws, func(w *Window) float64 { return float64(w.Ops) / max(w.Seconds, 1e-9) })
}

func besideSubordinates(ctx context.Context, t *Trial) error {
	if oneUser() {
		return errOneUser
	}
	ws, err := t.users(ctx, func() error {
		if _, err := t.userAt(ctx, firstTenant, 1, 64); err != nil {
			return err
		}
		for i := range subordinates {
			if _, err := t.userAt(ctx, firstSubordinate+i, 1, 16); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.injected("subordinate users", subordinates)
	st, err := t.status(ctx, 0)
	if err != nil {
		return err
	}
	t.counted("clients", uint64(st.Clients))
	t.agrees("clients", uint64(st.Clients), subordinates+1, 0)
	all := 0.0
	for _, w := range ws {
		all += w.rate()
	}
	share := ws[0].rate() / max(all, 1)
	t.row.Measured["all, MB/s"], t.row.Measured["share of the lone user"] = all/1e6, share
	t.check("the lone user moves 45 % at least", share >= 0.45, "a share of %.2f of %.1f MB/s", share, all/1e6)
	return nil
}
