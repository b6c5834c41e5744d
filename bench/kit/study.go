package kit

import (
	"context"
	"encoding/json"
	"errors"

	"multiedge/edge"
)

// Study is what runs between two lab hosts, a package with both ends: its client does what a Spec says, and reports a
// Result.
type Study[Spec, Result any] struct{ role string }

// Serve is the server's end of a study. It calls started when clients may come, and ends by Check when ctx ends.
type Serve func(ctx context.Context, d *edge.Device, started func())

// Run is the client's end of a study; it may end by Check.
type Run[Spec, Result any] func(ctx context.Context, d *edge.Device, s Spec, show Show) *Result

// Show tells a person what is being done, and how far that is, 0 to 1.
type Show = func(what string, share float64)

// studyJob is one end of a study in a lab host.
type studyJob struct {
	Server bool            `json:"server,omitempty"`
	Socket string          `json:"socket"`
	Spec   json.RawMessage `json:"spec"`
	Hosts  json.RawMessage `json:"hosts"` // the fields of Spec that the cluster decides
}

// studyEvent is what a client reports: progress, at the end the result.
type studyEvent struct {
	What   string          `json:"what,omitempty"`
	Share  float64         `json:"share,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// NewStudy adds a study by its name.
func NewStudy[Spec, Result any](name string, serve Serve, run Run[Spec, Result]) Study[Spec, Result] {
	return NewStudyBySocket(name, func(ctx context.Context, socket string, started func()) {
		d := Get(edge.Open(ctx, edge.Config{Socket: socket}))
		defer d.Close()
		serve(ctx, d, started)
	}, run)
}

// NewStudyBySocket is NewStudy for a server that opens its own devices.
func NewStudyBySocket[Spec, Result any](name string, serve func(ctx context.Context, socket string, started func()),
	run Run[Spec, Result]) Study[Spec, Result] {
	role := "study " + name
	AddRole(role, func(ctx context.Context, p *Port) error {
		return Try(func() {
			var j studyJob
			Check(p.Job(&j))
			if j.Server {
				serve(ctx, j.Socket, p.Started)
				return
			}
			var spec Spec
			Check(errors.Join(json.Unmarshal(j.Spec, &spec), json.Unmarshal(j.Hosts, &spec)))
			d := Get(edge.Open(ctx, edge.Config{Socket: j.Socket}))
			defer d.Close()
			result := run(ctx, d, spec, func(what string, share float64) {
				_ = p.Emit(studyEvent{What: what, Share: share}) // strings and numbers
			})
			Check(p.Emit(studyEvent{Result: Get(json.Marshal(result))}))
		})
	})
	return Study[Spec, Result]{role}
}

// Run runs a study between the first two hosts of a cluster. show is called now and then.
func (s Study[Spec, Result]) Run(ctx context.Context, c *Cluster, spec Spec, show Show) (*Result, error) {
	return Outcome(func() *Result {
		job := studyJob{Server: true, Socket: c.Socket(1), Spec: Get(json.Marshal(spec)), Hosts: Get(json.Marshal(
			map[string]any{"peer": c.lab.Host(1).Name(), "sockets": []string{c.Socket(0), c.Socket(1)}}))}
		both := NewCrew()
		defer both.Stop()
		both.Add("server", c.Start(1, s.role, job))
		both.AwaitStarted(ctx)
		job.Server, job.Socket = false, c.Socket(0)
		both.Add("client", c.Start(0, s.role, job))
		r := new(Result)
		for {
			said := both.Next(ctx)
			var e studyEvent
			if err := said.Into(&e); err != nil {
				Fail("unknown report %q: %w", said.Body, err)
			}
			if e.Result != nil {
				Check(json.Unmarshal(e.Result, r))
				return r
			}
			show(e.What, e.Share)
		}
	})
}
