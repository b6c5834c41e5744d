package faults

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"multiedge/bench/proc"
)

// finish ends the processes of a trial in good order. It judges U1 (memory), U2 (every operation accounted for), U3 and
// U5.
func (t *Trial) finish() {
	t.drainAll(func(*Window) {})
	for _, s := range t.servers {
		for _, what := range s.saidWrong() {
			t.row.U[0].fail("%s", what)
		}
	}
	for _, group := range [][]*agent{t.clients, t.servers} {
		for _, a := range group {
			rest := a.quit()
			if rest != nil && (rest.Goroutines > 0 || rest.Descriptors > 0) {
				t.row.U[2].fail("%s %s kept %d goroutines and %d descriptors after closing its device", a.job.Role,
					a.job.Name, rest.Goroutines, rest.Descriptors)
			}
		}
	}
	t.leaks()
	t.alive()
}

// drainAll makes all clients finish their work, passes their last windows to show, and compares memory.
func (t *Trial) drainAll(show func(*Window)) {
	for _, c := range t.clients {
		if c.killed {
			continue
		}
		w := t.drain(c)
		show(w)
		if w.Posted != w.Completed {
			t.row.U[1].fail("%s: %d operations were started, %d ended", c.job.Name, w.Posted, w.Completed)
		}
	}
	t.verify()
}

// verify has the servers compare memory with every claim that was handed in.
func (t *Trial) verify() {
	for _, c := range t.clients {
		t.verifyOf(c)
	}
}

// verifyOf does so for one client.
func (t *Trial) verifyOf(c *agent) {
	server := t.serverOf(c)
	if server == nil || server.killed {
		c.takeClaims()
		return
	}
	for _, h := range c.takeClaims() {
		t.compared(call[*Checked](server, "verify", h))
	}
}

// forget has a server let go of the memory of a client that was killed.
func (t *Trial) forget(server, client *agent) {
	for _, c := range call[[]*Checked](server, "forget", client.job.Name) {
		t.compared(c)
	}
}

// bytesCompared names the count of bytes that operations wrote and that were compared with an oracle.
const bytesCompared = "bytes compared"

func (t *Trial) compared(c *Checked) {
	if !c.Void {
		t.row.Counted[bytesCompared] += uint64(c.Bytes)
	}
	if c.Crashed > 0 {
		t.counted("notifications that went with a killed daemon", uint64(c.Crashed))
	}
	if c.Wrong > 0 {
		t.row.U[0].fail("%s: %d wrong bytes, %d of them canaries: %v", c.ID, c.Wrong, c.Canary, c.Details)
	}
	if c.Notes > 0 {
		t.row.U[1].fail("%s: %d notifications are wrong: %v", c.ID, c.Notes, c.Details)
	}
	if c.Late {
		t.row.U[1].fail("%s: %v", c.ID, c.Details)
	}
}

// serverOf is the server that a client's claims go to.
func (t *Trial) serverOf(c *agent) *agent {
	for _, s := range t.servers {
		if s.job.Service == c.job.Service && !s.killed {
			return s
		}
	}
	return nil
}

// leakTime is how long daemons may take to release what clients held.
const leakTime = 3 * time.Second

// leaks judges U3 of the daemons that run.
func (t *Trial) leaks() {
	for h := range t.before {
		var more []string
		_, ok := t.event(leakTime, func() bool {
			more = []string{"it does not answer"}
			more = t.held(h).exceeds(t.before[h])
			return len(more) == 0
		})
		if !ok {
			t.row.U[2].fail("daemon of host %d: %v", h, more)
		}
	}
}

// alive judges U5.
func (t *Trial) alive() {
	for h := range t.before {
		if p := t.cluster.Daemon(h); p.HasEnded() && !t.killed[p.Pid()] {
			t.row.U[4].fail("the daemon of host %d is gone", h)
		}
	}
	if line := panics(t.log.String()); line != "" {
		t.row.U[4].fail("a daemon: %s", line)
	}
	for _, a := range t.agents {
		if line := panics(a.words()); line != "" {
			t.row.U[4].fail("%s %s: %s", a.job.Role, a.job.Name, line)
		}
	}
}

// injected enters a fault's count; U4 asks for at least one.
func (t *Trial) injected(what string, n uint64) { t.row.Injected[what] += n }

// counted enters what daemons, clients or servers counted of a fault.
func (t *Trial) counted(what string, n uint64) { t.row.Counted[what] += n }

// some judges that faults were injected at all.
func (t *Trial) some() {
	if total(t.row.Injected) == 0 {
		t.row.U[3].fail("nothing was injected: the scenario proves nothing")
	}
}

// proven judges that memory was compared at all: otherwise a row says nothing about U1.
func (t *Trial) proven() {
	if t.row.Counted[bytesCompared] == 0 {
		t.row.U[0].fail("no memory was compared with an oracle: the scenario proves nothing")
	}
}

// agrees judges that a count equals what was injected, give or take.
func (t *Trial) agrees(what string, counted, injected, slack uint64) {
	diff := max(counted, injected) - min(counted, injected)
	if diff > slack {
		t.row.U[3].fail("%s: counted %d, injected %d (at most %d apart)", what, counted, injected, slack)
	}
}

// skipped records in the row a check that this form leaves out.
func (t *Trial) skipped(what string) {
	t.row.Checks = append(t.row.Checks, Check{What: fmt.Sprintf("%s: not in this form", what), Verdict: Unjudged})
}

// thisRest returns what the calling process holds.
func thisRest() Rest {
	r := restOf(os.Getpid())
	r.Goroutines = runtime.NumGoroutine()
	return r
}

// restOf returns what a process holds, as the kernel sees it. That excludes goroutines.
func restOf(pid int) Rest {
	return Rest{Descriptors: max(0, proc.Descriptors(pid)), Locked: proc.Locked(pid)}
}
