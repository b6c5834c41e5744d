package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"multiedge/bench/hostile"
	"multiedge/bench/kit"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// Hostile local users share a daemon with a victim, another user. The victim's goodput is compared with its goodput
// beside as many processes that only burn processor time: the daemon does not answer for what the kernel's scheduler
// takes from the victim.

// Limits of these scenarios' daemons, low enough to be met at once.
const (
	accountPinned  = 32 << 20 // bytes per user
	accountTotal   = 80 << 20
	accountRegions = 300 // per user
	allRegions     = 700
)

// firstUser is the number of the first hostile user.
const firstUser = 61000

func accountScenarios() []Scenario {
	return []Scenario{
		hostileUsers("jammed doorbells in a loop", "jam", 1, true, func(t *Trial, sum *hostile.Report) {
			t.tried("completions that rang jammed doorbells", sum.Completed)
		}),
		hostileUsers("punch and refill", "refill", 3, true, func(t *Trial, sum *hostile.Report) {
			t.check("no holes in pinned memory", sum.Holes == 0, "%d", sum.Holes)
			t.beyondLimits(sum)
		}),
		hostileUsers("descriptors of many users", "hoard", 4, true, (*Trial).beyondLimits),
		hostileUsers("clogged peers and hoarded queues", "clog", 3, true, func(t *Trial, sum *hostile.Report) {
			t.check("no client ends a queue of another", len(sum.Borne) == 0, "%q", sum.Borne)
			t.beyondLimits(sum)
		}),
		hostileUsers("malformed atomics, pieces, redirections and messages", "verbs", 8, true, (*Trial).evicted),
	}
}

// evicted judges that each malformed entry ended the client that posted it.
func (t *Trial) evicted(sum *hostile.Report) {
	t.all("clients evicted", uint64(sum.Evictions), sum.Acts)
	t.check("each malformed entry evicts its client", len(sum.Borne) == 0, "%q evicted nobody", sum.Borne)
}

// beyondLimits judges that the users asked for more than their limits allow, and were refused.
func (t *Trial) beyondLimits(sum *hostile.Report) {
	t.check("requests beyond the limits are refused", sum.Refusals > 0, "%d refusals after %d registrations",
		sum.Refusals, sum.Acts)
}

// hostileUsers runs so many misbehaving users.
func hostileUsers(name, mode string, users int, short bool, judge func(*Trial, *hostile.Report)) Scenario {
	return Scenario{
		Name: name, Group: Adversary,
		Criteria: "another user of the daemon keeps 90 % of its goodput; no limit is exceeded; the daemon answers",
		Short:    short,
		Set: func(s *kit.ClusterSpec) {
			shaped(s)
			s.Config = "mode = \"0666\"\n" + s.Config
			s.Limits += fmt.Sprintf("pinned = %d\npinned_total = %d\n", accountPinned, accountTotal)
			s.Limits += fmt.Sprintf("regions_per_user = %d\nregions_total = %d\n", accountRegions, allRegions)
		},
		Run: func(t *Trial) { t.endureHostile(mode, users, judge) },
	}
}

// perHostile bounds the descriptors that a daemon holds for a client, whatever it has registered.
const perHostile = 16

// How much longer the 99th percentile of the victim's operations may be beside hostile users.
const (
	hostileP99  = 1.5
	hostileMore = 5 * time.Millisecond // windows differ by this much anyway
)

// seen is the most that a daemon held for its clients, by its own account and by the kernel's.
type seen struct {
	users                             map[uint32]bool // whose clients there were
	charged, locked                   uint64          // bytes
	regions, userRegions, descriptors int
	failed                            error // it did not answer
}

// look adds what host 0's daemon holds now.
func (x *seen) look(t *Trial) {
	rest := restOf(t.cluster.Daemon(0).Pid())
	x.descriptors, x.locked = max(x.descriptors, rest.Descriptors), max(x.locked, rest.Locked)
	x.failed = errors.Join(x.failed, kit.Try(func() {
		st := t.status(0)
		x.charged, x.regions = max(x.charged, st.ChargedBytes), max(x.regions, st.RegionsCharged)
		for _, c := range ask[[]inspect.ClientStatus](t.Scene, 0, "client") {
			x.users[c.UID] = true
			x.userRegions = max(x.userRegions, c.UserRegions)
		}
	}))
}

func (t *Trial) endureHostile(mode string, users int, judge func(*Trial, *hostile.Report)) {
	t.admitUsers()
	c := t.pair(MixBulk, 2, 8)
	calm, most := seen{users: map[uint32]bool{}}, seen{users: map[uint32]bool{}}
	calm.look(t)
	x, sum := t.besideUsers(c, mode, users, 1, func() { most.look(t) })
	t.injected("acts", sum.Acts)
	t.row.Measured["refusals"] = float64(sum.Refusals)
	t.row.Measured["regions at most"] = float64(most.regions)
	t.row.Measured["MiB locked at most"] = float64(most.locked) / (1 << 20)
	t.ms("p99", x.p99())
	t.ms("p99 beside users that only compute", x.cleanP99())
	t.ms("longest stall", x.stall())
	t.unfailed(x.all()...)
	t.share("others keep", "another user keeps 90 % of its goodput", x.ratio(), 0.9)
	longest := time.Duration(hostileP99*float64(x.cleanP99())) + hostileMore
	t.speed("its operations take no longer", x.p99() <= longest, "p99 %v, beside as many users that only compute %v",
		x.p99(), x.cleanP99())
	t.check("no stall of the data thread", x.stall() < max(jamMost, 2*x.cleanStall()),
		"%v, beside as many users that only compute %v", x.stall(), x.cleanStall())
	t.check("the daemon answers", calm.failed == nil && most.failed == nil, "%v", errors.Join(calm.failed, most.failed))
	t.holdLimits(&calm, &most, users)
	delete(most.users, 0) // the victim
	if !hostile.Fatal(mode) {
		t.all("users at the daemon", uint64(len(most.users)), uint64(users))
	}
	judge(t, sum)
}

// holdLimits compares the most that the daemon held, with so many users attached, with its limits.
func (t *Trial) holdLimits(calm, most *seen, users int) {
	t.check("descriptors are bounded by the number of clients", most.descriptors <= calm.descriptors+users*perHostile,
		"%d, before %d", most.descriptors, calm.descriptors)
	t.check("memory is within the limit over all users", most.charged <= accountTotal &&
		most.locked <= calm.locked+accountTotal, "%d bytes charged, %d locked, before %d, the limit is %d",
		most.charged, most.locked, calm.locked, accountTotal)
	t.check("regions are within the limits", most.regions <= allRegions && most.userRegions <= accountRegions,
		"%d over all users, %d of one user", most.regions, most.userRegions)
}

// jamMost is longer than the pauses that the scheduler causes, where those beside users that only compute do not say
// that it causes longer ones. It is shorter than the time that the daemon needed to notice a jammed doorbell when
// doorbells could be jammed.
const jamMost = 200 * time.Millisecond

// besideUsers measures the victim, by turns, beside as many users that only compute and beside users that misbehave,
// each with so many clients. It returns what the latter did in all.
func (t *Trial) besideUsers(victim *agent, mode string, users, clients int, during func()) (*turns, *hostile.Report) {
	x, sum := &turns{}, &hostile.Report{}
	for range t.many(turnsJudged, 1) {
		x.clean = append(x.clean, t.misuse(victim, "burn", users, 1, func() {}, &hostile.Report{}))
		x.with = append(x.with, t.misuse(victim, mode, users, clients, during, sum))
	}
	return x, sum
}

// misuse measures the victim while so many users misbehave, each with so many clients, and adds what they did to sum.
func (t *Trial) misuse(victim *agent, mode string, users, clients int, during func(), sum *hostile.Report) *Window {
	var crowd []*agent
	for i := range users {
		a := t.spawn(0, Job{
			Role: RoleHostile, Name: fmt.Sprintf("%s%d", mode, i), Kind: mode, Peer: "host1", Service: "store",
			Seed: t.seed + uint64(i), UID: firstUser + i, Conns: clients,
		})
		crowd = append(crowd, a)
	}
	w := t.measure(victim, mode, t.span(3*time.Second, 700*time.Millisecond))
	during()
	for _, a := range crowd {
		r := last[hostile.Report](a)
		sum.Add(&r)
	}
	return w
}

// runHostile is a hostile client.
func runHostile(ctx context.Context, w *worker) {
	job := &w.job
	mischief, cancel := context.WithCancel(ctx) // ends before the process is told to quit
	defer cancel()
	o := hostile.Options{Mode: job.Kind, Seed: job.Seed, Clients: job.Conns, Again: true,
		Dial: func(ctx context.Context) (*ipc.Conn, error) { return ipc.Dial(ctx, job.Socket) }}
	if hostile.WithPeer(job.Kind) {
		n := 0
		o.Peer, o.Service = job.Peer, job.Service
		o.Hello = func() []byte {
			n++
			// of strings and numbers
			b, _ := json.Marshal(greeting{ID: fmt.Sprintf("%s-%d-%d", job.Name, os.Getpid(), n), Size: 64 << 10,
				Seed: job.Seed})
			return b
		}
	}
	var rep hostile.Report
	done := make(chan error, 1)
	go func() {
		var err error
		rep, err = hostile.Run(mischief, o)
		done <- err
	}()
	w.emit(Event{Started: true})
	w.serve(ctx, orders{"drain": on(func(any) *hostile.Report {
		cancel()
		kit.Check(<-done)
		return &rep
	})})
}
