package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"multiedge/bench/eager"
	"multiedge/bench/handles"
	"multiedge/bench/notify"
	"multiedge/bench/ondemand"
	"multiedge/bench/scale"
	"multiedge/edge"
)

// ScaleJob is one end of a run of package scale, handles, notify, eager or ondemand in a lab host.
type ScaleJob struct {
	Server   bool           `json:"server,omitempty"`
	Socket   string         `json:"socket"`
	Spec     scale.Spec     `json:"spec"`
	Handles  *handles.Spec  `json:"handles,omitempty"` // in place of Spec
	Notify   *notify.Spec   `json:"notify,omitempty"`  // likewise
	OnDemand *ondemand.Spec `json:"ondemand,omitempty"`
	Eager    *eager.Spec    `json:"eager,omitempty"`
	Other    string         `json:"other,omitempty"` // the socket of the other host's daemon
}

// scaleEvent is what such an end reports, one JSON line each. One field is set.
type scaleEvent struct {
	Started  bool             `json:"started,omitempty"`
	What     string           `json:"what,omitempty"` // with Share: progress
	Share    float64          `json:"share,omitempty"`
	Result   *scale.Result    `json:"result,omitempty"`
	Handles  *handles.Result  `json:"handles,omitempty"`
	Notify   *notify.Result   `json:"notify,omitempty"`
	OnDemand *ondemand.Result `json:"ondemand,omitempty"`
	Eager    *eager.Result    `json:"eager,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// ScaleLimits is what daemons must allow for a run: lines for their [limits].
func ScaleLimits(s scale.Spec) string {
	return fmt.Sprintf("conns = %[1]d\nexports = %[1]d\nconns_per_user = %[1]d\nrequests = 65536\nbacklog = 4096",
		min(s.Conns+1000, 1<<16))
}

// WorkScale does a job given as JSON and writes events.
func WorkScale(ctx context.Context, job string, out io.Writer) error {
	var j ScaleJob
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	enc := json.NewEncoder(out)
	emit := func(e scaleEvent) { _ = enc.Encode(e) } // a parent that is gone will end us
	d, err := edge.Open(ctx, edge.Config{Socket: j.Socket})
	if err == nil {
		defer d.Close()
		err = j.work(ctx, d, emit)
	}
	if err != nil && ctx.Err() == nil {
		emit(scaleEvent{Error: err.Error()})
	}
	return err
}

func (j *ScaleJob) work(ctx context.Context, d *edge.Device, emit func(scaleEvent)) (err error) {
	started := func() { emit(scaleEvent{Started: true}) }
	show := func(what string, share float64) { emit(scaleEvent{What: what, Share: share}) }
	var done scaleEvent
	switch {
	case j.Server && j.Handles != nil:
		return handles.Serve(ctx, d, started)
	case j.Server && j.Notify != nil:
		return notify.Serve(ctx, func(w edge.WaitMode) (*edge.Device, error) {
			return edge.Open(ctx, edge.Config{Socket: j.Socket, Wait: w})
		}, started)
	case j.Server && j.Eager != nil:
		return eager.Serve(ctx, d, started)
	case j.Server && j.OnDemand != nil:
		return ondemand.Serve(ctx, d, started)
	case j.Server:
		return scale.Serve(ctx, d, started)
	case j.Handles != nil:
		done.Handles, err = handles.Run(ctx, d, *j.Handles, show)
	case j.Notify != nil:
		j.Notify.Sockets = [2]string{j.Socket, j.Other}
		done.Notify, err = notify.Run(ctx, d, *j.Notify, show)
	case j.Eager != nil:
		done.Eager, err = eager.Run(ctx, d, *j.Eager, show)
	case j.OnDemand != nil:
		j.OnDemand.Socket = j.Socket
		done.OnDemand, err = ondemand.Run(ctx, d, *j.OnDemand, show)
	default:
		done.Result, err = scale.Run(ctx, d, j.Spec, show)
	}
	if err == nil {
		emit(done)
	}
	return err
}

// HandlesLimits is what daemons must allow for a run of package handles.
func HandlesLimits(s handles.Spec) string {
	return fmt.Sprintf("exports = %d\nrequests = 65536", slices.Max(s.Exports)+1000)
}

// Handles runs package handles between the first two hosts.
func (c *Cluster) Handles(ctx context.Context, s handles.Spec, show func(what string, share float64)) (*handles.Result,
	error) {
	s.Peer = c.lab.Host(1).Name()
	e, err := c.bothEnds(ctx, ScaleJob{Handles: &s}, show)
	return e.Handles, err
}

// Notify runs package notify between the first two hosts.
func (c *Cluster) Notify(ctx context.Context, s notify.Spec, show func(what string, share float64)) (*notify.Result,
	error) {
	s.Peer = c.lab.Host(1).Name()
	e, err := c.bothEnds(ctx, ScaleJob{Notify: &s, Other: c.Socket(1)}, show)
	return e.Notify, err
}

// Eager runs package eager between the first two hosts.
func (c *Cluster) Eager(ctx context.Context, s eager.Spec, show func(what string, share float64)) (*eager.Result,
	error) {
	s.Peer = c.lab.Host(1).Name()
	e, err := c.bothEnds(ctx, ScaleJob{Eager: &s}, show)
	return e.Eager, err
}

// OnDemand runs package ondemand between the first two hosts.
func (c *Cluster) OnDemand(ctx context.Context, s ondemand.Spec, show func(what string, share float64)) (
	*ondemand.Result, error) {
	s.Peer = c.lab.Host(1).Name()
	e, err := c.bothEnds(ctx, ScaleJob{OnDemand: &s}, show)
	return e.OnDemand, err
}

// Scale runs package scale between the first two hosts.
func (c *Cluster) Scale(ctx context.Context, s scale.Spec, show func(what string, share float64)) (*scale.Result,
	error) {
	s.Peer = c.lab.Host(1).Name()
	e, err := c.bothEnds(ctx, ScaleJob{Spec: s}, show)
	return e.Result, err
}

// bothEnds runs a job between the first two hosts, and returns the event with its result.
func (c *Cluster) bothEnds(ctx context.Context, j ScaleJob, show func(what string, share float64)) (none scaleEvent,
	err error) {
	j.Server, j.Socket = true, c.Socket(1)
	server, fromServer, err := c.startScale(1, j)
	if err != nil {
		return none, fmt.Errorf("server: %w", err)
	}
	defer server.stop()
	select {
	case e := <-fromServer:
		if !e.Started {
			<-server.ended
			return none, fmt.Errorf("server: %w", errors.Join(wordsOf(e), server.failure()))
		}
	case <-ctx.Done():
		return none, ctx.Err()
	}
	j.Server, j.Socket = false, c.Socket(0)
	client, events, err := c.startScale(0, j)
	if err != nil {
		return none, fmt.Errorf("client: %w", err)
	}
	defer client.stop()
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				<-client.ended
				return none, fmt.Errorf("client: %w", client.failure())
			case e.Result != nil || e.Handles != nil || e.Notify != nil || e.Eager != nil || e.OnDemand != nil:
				return e, nil
			case e.Error != "":
				err := fmt.Errorf("client: %s", e.Error)
				select { // it may be the server's fault
				case e := <-fromServer:
					err = errors.Join(err, fmt.Errorf("server: %w", wordsOf(e)))
				case <-time.After(time.Second):
				}
				return none, err
			}
			show(e.What, e.Share)
		case e, ok := <-fromServer:
			if !ok {
				<-server.ended
				return none, fmt.Errorf("server: %w", server.failure())
			}
			return none, fmt.Errorf("server: %w", wordsOf(e))
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
}

func wordsOf(e scaleEvent) error {
	if e.Error == "" {
		return nil
	}
	return errors.New(e.Error)
}

func (c *Cluster) startScale(host int, j ScaleJob) (*child, <-chan scaleEvent, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, nil, err
	}
	k, err := c.start(host, CommandScale, string(b))
	if err != nil {
		return nil, nil, err
	}
	ch := make(chan scaleEvent, 1)
	go func() {
		defer close(ch)
		sc := bufio.NewScanner(k.out)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var e scaleEvent
			if json.Unmarshal(sc.Bytes(), &e) == nil {
				select {
				case ch <- e:
				case <-k.ended: // nobody listens any more
				}
			}
		}
	}()
	return k, ch, nil
}
