package profile

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
)

// Profiler samples the machine until Close. Its methods may be called from any goroutine.
type Profiler struct {
	kernel *symbols
	stop   chan struct{}
	done   chan struct{}

	mu    sync.Mutex
	rings []*ring
	count map[int]report.Breakdown // by process: samples of each label
}

// drainEvery is well below the time a ring takes to fill.
const drainEvery = 50 * time.Millisecond

// New starts sampling. An error says what is missing for it.
func New() (*Profiler, error) {
	kernel, err := kernelSymbols()
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	p := &Profiler{kernel: kernel, stop: make(chan struct{}), done: make(chan struct{}),
		count: map[int]report.Breakdown{}}
	for cpu := range runtime.NumCPU() {
		r, err := openRing(cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // processor is offline
		}
		if err != nil {
			p.closeRings()
			return nil, fmt.Errorf("profile: sampling processor %d: %w (it takes root or CAP_PERFMON)", cpu, err)
		}
		p.rings = append(p.rings, r)
	}
	go p.run()
	return p, nil
}

func (p *Profiler) run() {
	defer close(p.done)
	t := time.NewTicker(drainEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.mu.Lock()
			p.drain()
			p.mu.Unlock()
		case <-p.stop:
			return
		}
	}
}

// drain takes all samples that have arrived. The caller holds p.mu.
func (p *Profiler) drain() {
	for _, r := range p.rings {
		r.drain(p.add)
	}
}

func (p *Profiler) add(s *sample) {
	b := p.count[s.pid]
	if b == nil {
		b = report.Breakdown{}
		p.count[s.pid] = b
	}
	b[p.label(s)]++
}

// label says what a process of the transport did.
func (p *Profiler) label(s *sample) string {
	if !s.kernel {
		if f := runtime.FuncForPC(uintptr(s.ip)); f != nil {
			return programLabel(f.Name())
		}
		return report.LabelIdle // the kernel's page of user code: reading the clock, which the polling loop does
	}
	names := make([]string, 0, maxChain)
	names = append(names, p.kernel.name(s.ip))
	for _, a := range s.chain {
		names = append(names, p.kernel.name(a))
	}
	return kernelLabel(names)
}

// Reset forgets all samples up to now.
func (p *Profiler) Reset() { p.Take() }

// Take returns the samples of each label by process since the last Reset.
func (p *Profiler) Take() map[int]report.Breakdown {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	out := p.count
	p.count = map[int]report.Breakdown{}
	return out
}

// Close ends sampling.
func (p *Profiler) Close() error {
	close(p.stop)
	<-p.done
	return p.closeRings()
}

func (p *Profiler) closeRings() error {
	var err error
	for _, r := range p.rings {
		err = errors.Join(err, r.close())
	}
	p.rings = nil
	return err
}

// Split divides the processor time of one end by samples: the transport's share, by the daemon's samples or, embedded,
// those of the process outside the application, and the application's. It returns nil when there are too few samples to
// say anything.
func Split(end report.End, process, daemon report.Breakdown, embedded bool) report.Breakdown {
	out := report.Breakdown{}
	own := end.ProcessUser + end.ProcessSystem
	if embedded {
		return spread(out, process, own)
	}
	if own > 0 {
		out[report.LabelApp] = own
	}
	return spread(out, daemon, end.DaemonUser+end.DaemonSystem)
}

// fewest is how many samples a breakdown takes.
const fewest = 20

// spread adds seconds to out in proportion to samples.
func spread(out, samples report.Breakdown, seconds float64) report.Breakdown {
	total := 0.0
	for _, n := range samples {
		total += n
	}
	if total < fewest {
		return nil
	}
	for label, n := range samples {
		out[label] += seconds * n / total
	}
	return out
}
