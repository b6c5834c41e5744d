package faults

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"multiedge/bench/kit"
)

// agent is a process of a scenario, as the process that runs the scenario sees it.
type agent struct {
	ctx    context.Context // of the scenario
	job    Job
	host   int
	proc   *kit.Process
	events chan Event // closed when the process has ended
	killed bool       // on purpose

	mu     sync.Mutex
	ended  []Ended
	notes  []string
	wrongs []string
	rest   *Rest
	lost   error
	claims []Handed // to be verified
}

// patience bounds the wait for any answer of a process.
const (
	patience = 40 * time.Second
	// added for each of many connections; one takes about a millisecond on an idle machine
	patienceEach = 5 * time.Millisecond
)

// spawn starts a process in a host and waits until it says that it has started.
func (s *Scene) spawn(host int, job Job) *agent {
	job.Socket, job.Dir, job.Spaces = s.cluster.Socket(host), s.cluster.Dir(), s.spaces
	p := s.cluster.Start(host, roleFault, job)
	a := &agent{ctx: s.ctx, job: job, host: host, proc: p, events: make(chan Event, 64)}
	s.agents = append(s.agents, a)
	go a.read()
	a.await("start", patience, func(e *Event) bool { return e.Started })
	return a
}

// read takes events apart: what is only kept, and what somebody waits for.
func (a *agent) read() {
	defer close(a.events)
	for said := range a.proc.Events {
		e := Event{Started: said.Started, Note: said.Note, Error: said.Error}
		if said.Into(&e) == nil && !a.keep(&e) {
			a.events <- e
		}
	}
}

func (a *agent) keep(e *Event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case e.Claim != nil:
		a.claims = append(a.claims, *e.Claim)
	case e.Ended != nil:
		a.ended = append(a.ended, *e.Ended)
	case e.Note != "":
		a.notes = append(a.notes, e.Note)
	case e.Wrong != "":
		a.wrongs = append(a.wrongs, e.Wrong)
	case e.Rest != nil:
		a.rest = e.Rest
	case e.Error != "":
		a.lost = errors.New(e.Error)
		return false
	default:
		return false
	}
	return true
}

// await returns the next event that fits. It drops all others: nobody waits for them any more.
func (a *agent) await(what string, within time.Duration, fits func(*Event) bool) *Event {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		select {
		case e, ok := <-a.events:
			if !ok {
				kit.Fail("%s %s ended while its %s was awaited: %s", a.job.Role, a.job.Name, what,
					a.lastWords())
			}
			if e.Error != "" {
				kit.Fail("%s %s: %s", a.job.Role, a.job.Name, e.Error)
			}
			if fits(&e) {
				return &e
			}
		case <-late.C:
			kit.Fail("%s %s: no %s within %v", a.job.Role, a.job.Name, what, within)
		case <-a.ctx.Done():
			kit.Check(a.ctx.Err())
		}
	}
}

func (a *agent) words() string { return strings.TrimSpace(a.proc.Words()) }

// lastWords returns the output of a process that takes no more orders or reports nothing more. The process has ended or
// is about to end, and may still be writing why.
func (a *agent) lastWords() string {
	select {
	case <-a.proc.Ended():
	case <-time.After(2 * time.Second):
	}
	return a.words()
}

// tell sends an order.
func (a *agent) tell(do string, arg any) {
	if err := a.proc.Tell(Order{Do: do, Arg: kit.Get(json.Marshal(arg))}); err != nil {
		kit.Fail("%s %s: %w: %s", a.job.Role, a.job.Name, err, a.lastWords())
	}
}

// call has a process call one of its functions, and returns the result.
func call[R any](a *agent, do string, arg any) R {
	a.tell(do, arg)
	return answer[R](a, do, patience)
}

// answer waits for an answer of a process.
func answer[R any](a *agent, to string, within time.Duration) (r R) {
	e := a.await("answer to "+to, within, func(e *Event) bool { return e.To == to })
	kit.Check(json.Unmarshal(e.Answer, &r))
	return r
}

// takeClaims returns what the client handed in that was not taken before.
func (a *agent) takeClaims() []Handed {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.claims
	a.claims = nil
	return c
}

// result waits for the report of a role with a single task. If the task repeats something, each repetition adds
// patienceEach.
func (a *agent) result() *Result {
	return answer[*Result](a, result, patience+time.Duration(a.job.Count)*patienceEach)
}

// last has a process stop and report, and ends it.
func last[R any](a *agent) R {
	defer a.quit()
	return call[R](a, "drain", nil)
}

// kill ends the process with SIGKILL, on purpose.
func (a *agent) kill() {
	a.killed = true
	_ = a.proc.Signal(syscall.SIGKILL) // it may be gone
	<-a.proc.Ended()
}

// quit ends the process in good order and returns what it still holds.
func (a *agent) quit() *Rest {
	if a.killed {
		return nil
	}
	a.tell(doQuit, nil)
	late := time.After(patience)
	for {
		select {
		case _, ok := <-a.events:
			if ok {
				continue
			}
			<-a.proc.Ended()
			a.mu.Lock()
			defer a.mu.Unlock()
			kit.Check(a.lost)
			return a.rest
		case <-late:
			kit.Fail("%s %s does not end", a.job.Role, a.job.Name)
		}
	}
}
