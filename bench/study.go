package bench

import (
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

// Studies are what runs between two lab hosts, each a package with both ends.
var (
	Scale    = newStudy("scale", scale.Serve, scale.Run)
	Handles  = newStudy("handles", handles.Serve, handles.Run)
	Notify   = newStudy("notify", nil, notify.Run)
	Eager    = newStudy("eager", eager.Serve, eager.Run)
	OnDemand = newStudy("ondemand", ondemand.Serve, ondemand.Run)
)

// Study is one of them: its client does what a Spec says, and reports a Result.
type Study[Spec, Result any] struct{ name string }

// ends are the server and the client of a study.
type ends struct {
	serve func(ctx context.Context, d *edge.Device, started func()) error // nil: notify, which opens its own devices
	run   func(ctx context.Context, d *edge.Device, j *StudyJob, show func(string, float64)) (any, error)
}

var studies = map[string]ends{} // by name

func newStudy[Spec, Result any](name string, serve func(context.Context, *edge.Device, func()) error,
	run func(context.Context, *edge.Device, Spec, func(string, float64)) (*Result, error)) Study[Spec, Result] {
	studies[name] = ends{serve, func(ctx context.Context, d *edge.Device, j *StudyJob, show func(string,
		float64)) (any, error) {
		var spec Spec
		if err := errors.Join(json.Unmarshal(j.Spec, &spec), json.Unmarshal(j.Hosts, &spec)); err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
		return run(ctx, d, spec, show)
	}}
	return Study[Spec, Result]{name}
}

// StudyJob is one end of a study in a lab host.
type StudyJob struct {
	Study  string          `json:"study"` // its name
	Server bool            `json:"server,omitempty"`
	Socket string          `json:"socket"`
	Spec   json.RawMessage `json:"spec"`
	Hosts  json.RawMessage `json:"hosts"` // the fields of Spec that the cluster decides
}

// studyEvent is what such an end reports, one JSON line each. One field is set.
type studyEvent struct {
	Started bool            `json:"started,omitempty"`
	What    string          `json:"what,omitempty"` // with Share: progress
	Share   float64         `json:"share,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// WorkStudy does a job given as JSON and writes events.
func WorkStudy(ctx context.Context, job string, out io.Writer) error {
	var j StudyJob
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	enc := json.NewEncoder(out)
	emit := func(e studyEvent) { _ = enc.Encode(e) } // a parent that is gone will end us
	err := j.work(ctx, emit)
	if err != nil && ctx.Err() == nil {
		emit(studyEvent{Error: err.Error()})
	}
	return err
}

func (j *StudyJob) work(ctx context.Context, emit func(studyEvent)) error {
	study, known := studies[j.Study]
	if !known {
		return fmt.Errorf("job: study %q is unknown", j.Study)
	}
	started := func() { emit(studyEvent{Started: true}) }
	if j.Server && study.serve == nil {
		return notify.Serve(ctx, j.Socket, started)
	}
	d, err := edge.Open(ctx, edge.Config{Socket: j.Socket})
	if err != nil {
		return err
	}
	defer d.Close()
	if j.Server {
		return study.serve(ctx, d, started)
	}
	show := func(what string, share float64) { emit(studyEvent{What: what, Share: share}) }
	result, err := study.run(ctx, d, j, show)
	if err != nil {
		return err
	}
	text, err := json.Marshal(result)
	if err == nil {
		emit(studyEvent{Result: text})
	}
	return err
}

// ScaleLimits is what daemons must allow for a run of package scale: lines for their [limits].
func ScaleLimits(s scale.Spec) string {
	return fmt.Sprintf("conns = %[1]d\nexports = %[1]d\nconns_per_user = %[1]d\nrequests = 65536\nbacklog = 4096",
		min(s.Conns+1000, 1<<16))
}

// HandlesLimits is likewise for package handles.
func HandlesLimits(s handles.Spec) string {
	return fmt.Sprintf("exports = %d\nrequests = 65536", slices.Max(s.Exports)+1000)
}

// Run runs a study between the first two hosts of a cluster. show is called now and then with what is being done and
// how far that is.
func (s Study[Spec, Result]) Run(ctx context.Context, c *Cluster, spec Spec, show func(what string,
	share float64)) (*Result, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	hosts, err := json.Marshal(map[string]any{"peer": c.lab.Host(1).Name(),
		"sockets": []string{c.Socket(0), c.Socket(1)}})
	if err != nil {
		return nil, err
	}
	text, err = c.bothEnds(ctx, StudyJob{Study: s.name, Spec: text, Hosts: hosts}, show)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	return r, json.Unmarshal(text, r)
}

// bothEnds runs a job between the first two hosts, and returns its result.
func (c *Cluster) bothEnds(ctx context.Context, j StudyJob, show func(what string, share float64)) (json.RawMessage,
	error) {
	j.Server, j.Socket = true, c.Socket(1)
	server, fromServer, err := c.startStudy(1, j)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	defer server.stop()
	defer drain(fromServer)
	select {
	case e := <-fromServer:
		if !e.Started {
			<-server.ended
			return nil, fmt.Errorf("server: %w", errors.Join(wordsOf(e), server.failure()))
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	j.Server, j.Socket = false, c.Socket(0)
	client, fromClient, err := c.startStudy(0, j)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	defer client.stop()
	defer drain(fromClient)
	for {
		select {
		case e, ok := <-fromClient:
			switch {
			case !ok:
				<-client.ended
				return nil, fmt.Errorf("client: %w", client.failure())
			case e.Result != nil:
				return e.Result, nil
			case e.Error != "":
				err := fmt.Errorf("client: %s", e.Error)
				select { // it may be the server's fault
				case e := <-fromServer:
					err = errors.Join(err, fmt.Errorf("server: %w", wordsOf(e)))
				case <-time.After(time.Second):
				}
				return nil, err
			}
			show(e.What, e.Share)
		case e, ok := <-fromServer:
			if !ok {
				<-server.ended
				return nil, fmt.Errorf("server: %w", server.failure())
			}
			return nil, fmt.Errorf("server: %w", wordsOf(e))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func wordsOf(e studyEvent) error {
	if e.Error == "" {
		return nil
	}
	return errors.New(e.Error)
}

func (c *Cluster) startStudy(host int, j StudyJob) (*child, <-chan studyEvent, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, nil, err
	}
	k, err := c.start(host, CommandStudy, string(b))
	if err != nil {
		return nil, nil, err
	}
	return k, events[studyEvent](k.out), nil
}
