package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// Times of every scene's daemons. The deadlines of operations follow from them.
const (
	keepAlive = 500 * time.Millisecond
	deadTime  = 4 * time.Second
)

// logBytes bounds the part of the daemons' log that is kept.
const logBytes = 4 << 20

// deadline is the time by which an operation must have ended. A daemon notices a silent peer after the dead time; it
// looks once per keep-alive.
func deadline(dead time.Duration) time.Duration { return dead + 2*keepAlive + time.Second }

// Scene is a lab with daemons and the processes of a scenario.
type Scene struct {
	ctx     context.Context // of the scenario
	cluster *kit.Cluster
	spec    kit.ClusterSpec
	dead    time.Duration
	agents  []*agent
	log     *kit.Tail      // of the daemons
	before  []held         // by host
	killed  map[int]bool   // daemons by process, on purpose
	after   []func() error // what is done when all processes have ended
	ends    []func()       // what is done when the scenario's own work is over, the last first
	spaces  bool           // of processes that are started: Job.Spaces
}

// held is what a host's daemon holds.
type held struct {
	Clients, Connections, Regions, Exports int
	Pinned                                 uint64
	Rest
}

// stageSpec is the cluster of a scenario before it makes its changes: two hosts, one wire.
func stageSpec(seed uint64) kit.ClusterSpec {
	return kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1, MTU: 9000, Medium: lab.Wire, Seed: seed}, Log: "info"}
}

// newScene builds the lab. dead is the daemons' dead time. After an error nothing is left.
func newScene(ctx context.Context, spec kit.ClusterSpec, dead time.Duration) (_ *Scene, err error) {
	s := &Scene{ctx: ctx, spec: spec, dead: dead, log: &kit.Tail{Limit: logBytes}, killed: map[int]bool{}}
	s.spec.LogTo = s.log
	// Memory of spaces misses again and again: used where it lies, evicted memory would miss once.
	s.spec.Config = fmt.Sprintf("misses = \"park\"\nkeep_alive = %q\ndead_time = %q\n%s[metrics]\nlisten = %q\n",
		keepAlive, dead, spec.Config, metricsAddress)
	if s.cluster, err = kit.NewCluster(ctx, s.spec); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.cluster.Close())
		}
	}()
	err = kit.Try(func() {
		for h := range s.cluster.Lab().Hosts() {
			s.before = append(s.before, s.settled(h))
		}
	})
	return s, err
}

func (s *Scene) close() error {
	for _, a := range s.agents {
		if !a.proc.HasEnded() {
			a.proc.Kill()
		}
	}
	err := s.cluster.Close()
	for _, f := range s.after {
		err = errors.Join(err, f())
	}
	return err
}

// A daemon may take settleTime to start everything, or settleLooks looks, if they take longer.
const (
	settleTime  = 5 * time.Second
	settleLooks = 60
)

// settled returns what a host's daemon holds once it has started everything, which is when its numbers stay the same
// for a while. A look leaves a connection that the daemon has yet to close. So the next look follows after as long as
// this one took.
func (s *Scene) settled(host int) (last held) {
	for start, looks, same := time.Now(), 1, 0; same < 4; looks++ {
		var now held
		at := time.Now()
		err := kit.Try(func() { now = s.held(host) })
		if err == nil && now == last {
			same++
		} else {
			same, last = 0, now
		}
		if time.Since(start) > settleTime && looks > settleLooks {
			kit.Fail("the daemon of host %d does not settle: %+v and, after %d looks that found the same, %+v (%v)",
				host, last, same, now, err)
		}
		s.pause(max(25*time.Millisecond, time.Since(at)))
	}
	return last
}

// held asks a host's daemon what it holds. A scrape itself takes one to three goroutines, so their number is taken from
// the status, which is asked last.
func (s *Scene) held(host int) held {
	m := s.scrape(host)
	st := s.status(host)
	r := restOf(st.PID)
	r.Goroutines = st.Goroutines
	r.Descriptors = int(m["process_open_fds"])
	return held{st.Clients, st.Connections, st.Regions, st.Exports, st.PinnedBytes, r}
}

// exceeds lists the numbers that are larger than before.
func (h held) exceeds(b held) (out []string) {
	for _, f := range []struct {
		what     string
		now, was uint64
	}{
		{"clients", uint64(h.Clients), uint64(b.Clients)}, {"connections", uint64(h.Connections),
			uint64(b.Connections)},
		{"regions", uint64(h.Regions), uint64(b.Regions)}, {"exports", uint64(h.Exports), uint64(b.Exports)},
		{"pinned bytes", h.Pinned, b.Pinned}, {"locked bytes", h.Locked, b.Locked},
		{"goroutines", uint64(h.Goroutines), uint64(b.Goroutines)}, {"descriptors", uint64(h.Descriptors),
			uint64(b.Descriptors)},
	} {
		if f.now > f.was {
			out = append(out, fmt.Sprintf("%d %s, %d at the start", f.now, f.what, f.was))
		}
	}
	return out
}

// crash kills a host's daemon as the fault of a scenario; restarted starts it again as well.
func (t *Trial) crash(host int) {
	t.killDaemon(host)
	t.injected("daemons killed", 1)
}

func (t *Trial) restarted(host int) {
	t.crash(host)
	t.startDaemon(host)
}

// killDaemon ends a host's daemon with SIGKILL.
func (s *Scene) killDaemon(host int) {
	p := s.cluster.Daemon(host)
	s.killed[p.Pid()] = true
	p.Kill()
}

// endings waits until a server has seen the ends of so many connections.
func (t *Trial) endings(server *agent, n int) (took time.Duration, ok bool) {
	return t.event(2*time.Second, func() bool { return len(server.endings()) >= n })
}

// startDaemon starts a host's daemon again.
func (s *Scene) startDaemon(host int) { s.cluster.StartDaemon(s.ctx, host) }

// atEnd has something done when the scenario's own work is over, well or not.
func (s *Scene) atEnd(do func()) { s.ends = append(s.ends, do) }

func (s *Scene) end() {
	for _, do := range slices.Backward(s.ends) {
		do()
	}
	s.ends = nil
}

// open attaches this process to a host's daemon until the scenario's work is over.
func (s *Scene) open(host int) *edge.Device {
	dev := kit.Get(edge.Open(s.ctx, edge.Config{Socket: s.cluster.Socket(host)}))
	s.atEnd(func() { dev.Close() })
	return dev
}

// cut cuts a link or heals it, in both directions or towards one host.
func (s *Scene) cut(link int, on bool) { kit.Check(s.cluster.Lab().Link(link).Cut(on)) }

func (s *Scene) cutTowards(link, host int, on bool) {
	kit.Check(s.cluster.Lab().Link(link).CutTowards(host, on))
}

// daemonCounters adds the counters of all daemons that answer.
func (s *Scene) daemonCounters() map[string]uint64 {
	sum := map[string]uint64{}
	for h := range s.cluster.Lab().Hosts() {
		s.addCounters(h, sum)
	}
	return sum
}

func (s *Scene) addCounters(host int, sum map[string]uint64) {
	st := s.status(host)
	for k, v := range st.Counters {
		sum[k] += v
	}
	links := s.links(host)
	for i := range links {
		for _, k := range []string{"dropped", "truncated"} {
			sum["kernel_"+k] += links[i].Kernel[k]
		}
		sum["send_discards"] += links[i].Discards
	}
}

// labCounters adds up the counters of all links.
func (s *Scene) labCounters() (sum lab.Counters) {
	all, err := s.cluster.Lab().Counters()
	for _, c := range all {
		sum = sum.Plus(c)
	}
	kit.Check(err)
	return sum
}

// setFaultsOf sets the faults of a link.
func (s *Scene) setFaultsOf(link int, f lab.Faults) {
	kit.Check(s.cluster.Lab().Link(link).SetFaults(f))
}

// setFaults sets the faults of every link.
func (s *Scene) setFaults(f lab.Faults) {
	for i := range s.cluster.Lab().Links() {
		s.setFaultsOf(i, f)
	}
}

// logged counts the lines of the daemons' log that hold all words.
func (s *Scene) logged(all ...string) (n int) {
	for line := range strings.Lines(s.log.String()) {
		has := true
		for _, w := range all {
			has = has && strings.Contains(line, w)
		}
		if has {
			n++
		}
	}
	return n
}
