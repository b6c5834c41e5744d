package faults

import (
	"fmt"
	"strings"
	"time"

	"multiedge/bench/kit"
)

// Scenario is one fault: how it is injected, and when it counts as survived.
type Scenario struct {
	Name     string
	Group    string
	Criteria string                   // in words, as docs/RELIABILITY.md has it
	Short    bool                     // part of the short form
	Dead     time.Duration            // of the daemons; zero: deadTime
	Set      func(s *kit.ClusterSpec) // changes to the scene; nil: none
	Run      func(t *Trial)           // it ends itself when it cannot go on (kit.Check)
}

// Forms says which forms run the scenario: "short, long" or "long".
func (s *Scenario) Forms() string {
	if s.Short {
		return "short, long"
	}
	return "long"
}

// Trial is a scenario that runs.
type Trial struct {
	*Scene
	row     *Row
	short   bool
	seed    uint64
	clients []*agent
	servers []*agent
}

// span returns how long a part lasts in the full or in the short form.
func (t *Trial) span(full, short time.Duration) time.Duration {
	if t.short {
		return short
	}
	return full
}

// many returns how often something is done in the full or in the short form.
func (t *Trial) many(full, short int) int {
	if t.short {
		return short
	}
	return full
}

// check records a criterion of the scenario and whether it holds.
func (t *Trial) check(what string, ok bool, format string, args ...any) {
	c := Check{What: what, Verdict: Pass}
	if !ok {
		c.fail(format, args...)
	}
	t.row.Checks = append(t.row.Checks, c)
}

// succeeds judges that nothing fails in f.
func (t *Trial) succeeds(what string, f func()) {
	err := kit.Try(f)
	t.check(what, err == nil, "%v", err)
}

// speed is like check, for a figure of speed. The short form shows it and does not judge it.
func (t *Trial) speed(what string, ok bool, format string, args ...any) {
	if t.short {
		t.row.Checks = append(t.row.Checks, Check{What: what + " (not judged in the short form)", Verdict: Unjudged})
		return
	}
	t.check(what, ok, format, args...)
	t.row.Checks[len(t.row.Checks)-1].Speed = true
}

// share records a share under a name, and judges as speed does that it is at least so much.
func (t *Trial) share(name, what string, share, least float64) {
	t.row.Measured[name] = share
	t.speed(what, share >= least, "%.1f %%", 100*share)
}

// ms records a duration.
func (t *Trial) ms(name string, d time.Duration) {
	t.row.Measured[name+" ms"] = float64(d.Microseconds()) / 1e3
}

// serve starts a server in a host.
func (t *Trial) serve(host int, service string) *agent {
	a := t.spawn(host, Job{Role: RoleServer, Name: service, Service: service})
	t.servers = append(t.servers, a)
	return a
}

// work starts a client in host 0 that works with a service of host 1.
func (t *Trial) work(service, mix string, conns, depth int) *agent {
	return t.workFrom(0, 1, service, mix, conns, depth)
}

func (t *Trial) workFrom(host, peer int, service, mix string, conns, depth int) *agent {
	return t.client(host, Job{Peer: t.cluster.Lab().Host(peer).Name(), Service: service, Mix: mix, Conns: conns,
		Depth: depth, Deadline: deadline(t.dead)})
}

// client starts a client in a host.
func (t *Trial) client(host int, job Job) *agent {
	job.Role, job.Name, job.Seed = RoleClient, fmt.Sprintf("%s%d", job.Service, len(t.agents)), t.seed
	a := t.spawn(host, job)
	t.clients = append(t.clients, a)
	return a
}

// pair starts a server and a client, and returns the client once operations complete.
func (t *Trial) pair(mix string, conns, depth int) *agent {
	t.serve(1, "store")
	c := t.work("store", mix, conns, depth)
	t.flowing(c, 10*time.Second)
	return c
}

// flowing waits until a client completes operations, with every connection up. It returns the longest time without a
// completion until then.
func (t *Trial) flowing(a *agent, within time.Duration) (stall time.Duration) {
	for end := time.Now().Add(within); ; {
		t.pause(100 * time.Millisecond)
		w := t.mark(a, "flowing")
		stall = max(stall, w.Stall)
		if w.Ops > 0 && w.Up >= a.job.Conns {
			return stall
		}
		if time.Now().After(end) {
			kit.Fail("%d operations complete, %d of %d connections are up: dial errors %v, operations' "+
				"errors %v", w.Ops, w.Up, a.job.Conns, w.DialErrors, w.Errors)
		}
	}
}

// movesOn waits until a client completes operations again after a change, which takes 2 s at most. It returns the
// longest time without a completion until then.
func (t *Trial) movesOn(a *agent, after string, args ...any) (stall time.Duration) {
	kit.Doing(func() { stall = t.flowing(a, 2*time.Second) }, "data does not move within 2 s after "+after, args...)
	return stall
}

// mark takes a window of a client and records in U1 and U2 what is wrong with it.
func (t *Trial) mark(a *agent, name string) *Window {
	w := call[*Window](a, "mark", name)
	t.judge(a, w)
	return w
}

// drain makes a client finish its work. It returns and judges the client's last window.
func (t *Trial) drain(a *agent) *Window {
	w := call[*Window](a, "drain", nil)
	t.judge(a, w)
	return w
}

// until marks a client repeatedly until ok accepts everything that it did meanwhile. It returns that, and how long it
// took; false after within.
func (t *Trial) until(a *agent, name string, within time.Duration,
	ok func(w *Window) bool) (*Window, time.Duration, bool) {
	var w Window
	took, done := t.event(within, func() bool {
		w.add(t.mark(a, name))
		return ok(&w)
	})
	return &w, took, done
}

func (t *Trial) judge(a *agent, w *Window) {
	for _, what := range w.Wrong {
		t.row.U[0].fail("%s: %s", a.job.Name, what)
	}
	if w.Late > 0 {
		t.row.U[1].fail("%s: %d operations missed their deadline of %v", a.job.Name, w.Late, a.job.Deadline)
	}
	for _, what := range w.Untyped {
		t.row.U[1].fail("%s: untyped error: %s", a.job.Name, what)
	}
}

// measure returns a client's window over a time d.
func (t *Trial) measure(a *agent, name string, d time.Duration) *Window {
	t.mark(a, name+" begins")
	t.pause(d)
	return t.mark(a, name)
}

// rate is a window's goodput in bytes per second.
func (w *Window) rate() float64 { return float64(w.Bytes) / max(w.Seconds, 1e-9) }

// unfailed judges windows in which no operation may fail.
func (t *Trial) unfailed(ws ...*Window) {
	bad, again := map[string]uint64{}, uint64(0)
	for _, w := range ws {
		for k, n := range w.Errors {
			bad[k] += n
		}
		again += w.Reconnects
	}
	t.check("no operation fails, same connections", len(bad) == 0 && again == 0, "operations failed: %s; %d reconnects",
		counts(bad), again)
}

// pause lets time pass.
func (s *Scene) pause(d time.Duration) { kit.Rest(s.ctx, d) }

// event polls a condition until it holds, and returns how long that took; false after within. A poll that fails, such
// as a question to a daemon that is not there, counts as one that does not hold.
func (t *Trial) event(within time.Duration, ok func() bool) (time.Duration, bool) {
	start, held := time.Now(), false
	for {
		if err := kit.Try(func() { held = ok() }); err == nil && held {
			return time.Since(start), true
		}
		if time.Since(start) > within || !sleep(t.ctx, 5*time.Millisecond) {
			return time.Since(start), false
		}
	}
}

// panicLines show the two stacks of a race.
const panicLines = 50

// panics finds signs of a crash or a race in what a process wrote, and returns panicLines from there.
func panics(words string) string {
	for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "SIGSEGV"} {
		if i := strings.Index(words, sign); i >= 0 {
			lines := strings.SplitN(words[i:], "\n", panicLines+1)
			return strings.TrimSpace(strings.Join(lines[:min(len(lines), panicLines)], "\n"))
		}
	}
	return ""
}
