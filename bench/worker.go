package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"multiedge/bench/contender"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/edge"
)

// Job is what one benchmark process does: one end of a series. Lab hosts get it as JSON.
type Job struct {
	Server    bool            `json:"server,omitempty"`
	Transport Transport       `json:"transport"`
	Region    int             `json:"region"`
	Peer      string          `json:"peer,omitempty"`
	Service   string          `json:"service,omitempty"`   // offered or dialled; empty: the usual one
	Scheduler string          `json:"scheduler,omitempty"` // asked for by the dial
	Specs     []workload.Spec `json:"specs,omitempty"`
	Warmup    time.Duration   `json:"warmup,omitempty"`
	Fit       bool            `json:"fit,omitempty"` // leave out sizes that memory does not allow, instead of failing
}

// Transport says how a process reaches the transport.
type Transport struct {
	Socket   string         `json:"socket,omitempty"`
	Embedded *edge.Embedded `json:"embedded,omitempty"` // within the process
	Wait     string         `json:"wait,omitempty"`     // adaptive, block or busy
	Depth    int            `json:"depth,omitempty"`
}

// waitModes are the values of Transport.Wait.
var waitModes = map[string]edge.WaitMode{"": edge.Adaptive, "adaptive": edge.Adaptive, "block": edge.Block,
	"busy": edge.Busy}

// attach returns how a workload opens its device.
func (t *Transport) attach(region int, log func(string, ...any)) (workload.Attach, error) {
	mode, ok := waitModes[t.Wait]
	if !ok {
		return workload.Attach{}, fmt.Errorf("poll mode %q: want adaptive, block or busy", t.Wait)
	}
	cfg := edge.Config{Socket: t.Socket, Wait: mode, QueueDepth: queueDepth(t.Depth), Embedded: t.Embedded}
	return workload.Attach{
		Embedded: t.Embedded != nil, Region: region, Log: log,
		Open: func(ctx context.Context) (*edge.Device, error) { return edge.Open(ctx, cfg) },
	}, nil
}

// queueDepth is the device's queue for depth operations of a benchmark and its control messages: a power of two.
func queueDepth(depth int) int {
	q := 1024
	for q < depth+16 {
		q *= 2
	}
	return q
}

// Event is what a benchmark process reports while it runs. One field is set.
type Event struct {
	Started bool        `json:"-"` // server: the service is offered
	Note    string      `json:"note,omitempty"`
	Begin   bool        `json:"begin,omitempty"` // the part of the next row's measurement that counts begins
	Show    *Show       `json:"show,omitempty"`
	Row     *report.Row `json:"row,omitempty"`
}

// Show is progress within measurement Index.
type Show struct {
	Index      int     `json:"index"`
	Share      float64 `json:"share"`
	Throughput float64 `json:"throughput"`
}

// Work does a job and reports to sink, from one goroutine at a time. Ending ctx ends a server in good order.
func Work(ctx context.Context, j *Job, sink func(Event)) error {
	var mu sync.Mutex
	emit := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		sink(e)
	}
	a, err := j.Transport.attach(j.Region, func(format string, args ...any) {
		if j.Server {
			emit(Event{Note: fmt.Sprintf(format, args...)})
		}
	})
	if err != nil {
		return err
	}
	a.Service = j.Service
	if j.Server {
		return workload.Serve(ctx, a, func() { emit(Event{Started: true}) })
	}
	return j.client(ctx, a, emit)
}

func (j *Job) client(ctx context.Context, a workload.Attach, emit func(Event)) (err error) {
	c, err := workload.Dial(ctx, a, workload.DialOptions{Peer: j.Peer, Scheduler: j.Scheduler, Specs: j.Specs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	specs := j.Specs
	if j.Fit {
		var note string
		if specs, note = FitSizes(specs, c.Region); note != "" {
			c.Notes = append(c.Notes, note)
		}
	}
	for _, n := range c.Notes {
		emit(Event{Note: n})
	}
	for i, s := range specs {
		row, err := j.measure(ctx, c, i, s, emit)
		if row != nil {
			emit(Event{Row: row})
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", s.Test, report.Bytes(s.Size), err)
		}
	}
	return nil
}

// measure runs one spec, the first one of a series after a warm-up that does not count, except for what it finds
// wrong.
func (j *Job) measure(ctx context.Context, c *workload.Client, i int, s workload.Spec, emit func(Event)) (*report.Row,
	error) {
	warm := &report.Row{}
	if i == 0 && j.Warmup > 0 {
		w := s
		w.Count, w.Duration = 0, j.Warmup
		var err error
		if warm, err = c.Run(ctx, w, nil); err != nil {
			return warm, err
		}
	}
	c.Begin = func() { emit(Event{Begin: true}) }
	row, err := c.Run(ctx, s, func(share, throughput float64) { emit(Event{Show: &Show{i, share, throughput}}) })
	row.IntegrityErrors += warm.IntegrityErrors
	row.IntegrityDetail = append(row.IntegrityDetail, warm.IntegrityDetail...)
	return row, err
}

// roleWorker is one end of a series, as a process in a lab host.
const roleWorker = "worker"

func init() {
	kit.AddRole(roleWorker, func(ctx context.Context, p *kit.Port) error {
		var j Job
		if err := p.Job(&j); err != nil {
			return err
		}
		return Work(ctx, &j, func(e Event) {
			if e.Started {
				p.Started()
			} else {
				_ = p.Emit(e) // strings and numbers
			}
		})
	})
	kit.AddCommand("lab-enter", 1, func(_ context.Context, argv []string) error {
		return contender.Enter(argv)
	})
}

// Warmup is how long a series runs before what counts: congestion windows open, pages and code become warm.
func Warmup(specs []workload.Spec) time.Duration {
	if len(specs) == 0 || specs[0].Count > 0 && specs[0].Warmup == 0 {
		return 0 // a number of messages was asked for, so that many are sent
	}
	return warmup(&specs[0])
}

// warmup is how long work is done before what counts, by every transport.
func warmup(s *workload.Spec) time.Duration {
	return cmp.Or(s.Warmup, min(200*time.Millisecond, s.Duration/4))
}
