package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"multiedge/bench"
	"multiedge/internal/lab"
)

// Times of every stage's daemons. The deadlines of operations follow from them.
const (
	keepAlive = 500 * time.Millisecond
	deadTime  = 4 * time.Second
)

// logBytes bounds the part of the daemons' log that is kept.
const logBytes = 4 << 20

// deadline is the time by which an operation must have ended. A daemon notices a silent peer after the dead time; it
// looks once per keep-alive.
func deadline(dead time.Duration) time.Duration { return dead + 2*keepAlive + time.Second }

// Stage is a lab with daemons and the processes of a scenario.
type Stage struct {
	cluster *bench.Cluster
	spec    bench.ClusterSpec
	dead    time.Duration
	agents  []*agent
	log     *bench.Tail    // of the daemons
	before  []held         // by host
	killed  map[int]bool   // daemons by process, on purpose
	after   []func() error // what is done when all processes have ended
	spaces  bool           // of processes that are started: Job.Spaces
}

// held is what a host's daemon holds.
type held struct {
	Clients, Connections, Regions, Exports int
	Pinned                                 uint64
	Rest
}

// stageSpec is the cluster of a scenario before it makes its changes: two hosts, one wire.
func stageSpec(seed uint64) bench.ClusterSpec {
	return bench.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1, MTU: 9000, Medium: lab.Wire, Seed: seed}, Log: "info"}
}

// newStage builds the lab. dead is the daemons' dead time. After an error nothing is left.
func newStage(ctx context.Context, spec bench.ClusterSpec, dead time.Duration) (_ *Stage, err error) {
	s := &Stage{spec: spec, dead: dead, log: &bench.Tail{Limit: logBytes}, killed: map[int]bool{}}
	s.spec.LogTo = s.log
	// Memory of spaces misses again and again: used where it lies, evicted memory would miss once.
	s.spec.Config = fmt.Sprintf("misses = \"park\"\nkeep_alive = %q\ndead_time = %q\n%s[metrics]\nlisten = %q\n",
		keepAlive, dead, spec.Config, metricsAddress)
	if s.cluster, err = bench.NewCluster(ctx, s.spec); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.cluster.Close())
		}
	}()
	for h := range s.cluster.Lab().Hosts() {
		b, err := s.settled(ctx, h)
		if err != nil {
			return nil, err
		}
		s.before = append(s.before, b)
	}
	return s, nil
}

func (s *Stage) close() error {
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
func (s *Stage) settled(ctx context.Context, host int) (last held, err error) {
	for start, looks, same := time.Now(), 1, 0; same < 4; looks++ {
		var now held
		at := time.Now()
		if now, err = s.held(ctx, host); err == nil && now == last {
			same++
		} else {
			same, last = 0, now
		}
		if time.Since(start) > settleTime && looks > settleLooks {
			return last,
				fmt.Errorf("the daemon of host %d does not settle: %+v and, after %d looks that found the same, %+v "+
					"(%v)", host, last, same, now, err)
		}
		if !sleep(ctx, max(25*time.Millisecond, time.Since(at))) {
			return last, ctx.Err()
		}
	}
	return last, nil
}

// held asks a host's daemon what it holds. A scrape itself takes one to three goroutines, so their number is taken from
// the status, which is asked last.
func (s *Stage) held(ctx context.Context, host int) (held, error) {
	m, err := s.scrape(ctx, host)
	if err != nil {
		return held{}, err
	}
	st, err := s.status(ctx, host)
	if err != nil {
		return held{}, err
	}
	r := restOf(st.PID)
	r.Goroutines = st.Goroutines
	r.Descriptors = int(m["process_open_fds"])
	return held{st.Clients, st.Connections, st.Regions, st.Exports, st.PinnedBytes, r}, nil
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

// killDaemon ends a host's daemon with SIGKILL.
func (s *Stage) killDaemon(host int) {
	p := s.cluster.Daemon(host)
	s.killed[p.Pid()] = true
	p.Kill()
}

// daemonCounters adds the counters of all daemons that answer.
func (s *Stage) daemonCounters(ctx context.Context) (map[string]uint64, error) {
	sum := map[string]uint64{}
	for h := range s.cluster.Lab().Hosts() {
		if err := s.addCounters(ctx, h, sum); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (s *Stage) addCounters(ctx context.Context, host int, sum map[string]uint64) error {
	st, err := s.status(ctx, host)
	if err != nil {
		return err
	}
	for k, v := range st.Counters {
		sum[k] += v
	}
	links, err := s.links(ctx, host)
	if err != nil {
		return err
	}
	for i := range links {
		for _, k := range []string{"dropped", "truncated"} {
			sum["kernel_"+k] += links[i].Kernel[k]
		}
		sum["send_discards"] += links[i].Discards
	}
	return nil
}

// labCounters adds up the counters of all links.
func (s *Stage) labCounters() (sum lab.Counters, err error) {
	all, err := s.cluster.Lab().Counters()
	for _, c := range all {
		sum = sum.Plus(c)
	}
	return sum, err
}

// setFaults sets the faults of every link.
func (s *Stage) setFaults(f lab.Faults) error {
	l := s.cluster.Lab()
	for i := range l.Links() {
		if err := l.Link(i).SetFaults(f); err != nil {
			return err
		}
	}
	return nil
}

// logged counts the lines of the daemons' log that hold all words.
func (s *Stage) logged(all ...string) (n int) {
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
