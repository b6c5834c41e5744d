package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
		server := c.Start(1, s.role, job)
		defer server.Stop()
		defer server.Drain()
		Checkf(server.AwaitStarted(ctx), "server")
		job.Server, job.Socket = false, c.Socket(0)
		client := c.Start(0, s.role, job)
		defer client.Stop()
		defer client.Drain()
		r := new(Result)
		Check(json.Unmarshal(followBoth(ctx, client, server, show), r))
		return r
	})
}

// followBoth passes on the client's progress and returns its result.
func followBoth(ctx context.Context, client, server *Process, show Show) json.RawMessage {
	for {
		select {
		case e, ok := <-client.Events:
			var s studyEvent
			switch {
			case !ok:
				Fail("client: %w", client.Failure())
			case e.Error != "":
				err := fmt.Errorf("client: %s", e.Error)
				select { // it may be the server's fault
				case e := <-server.Events:
					err = errors.Join(err, fmt.Errorf("server: %s", e.Error))
				case <-time.After(time.Second):
				}
				Check(err)
			case e.Into(&s) != nil:
				Fail("client: unknown report %q", e.Body)
			case s.Result != nil:
				return s.Result
			}
			show(s.What, s.Share)
		case e, ok := <-server.Events:
			if !ok {
				Fail("server: %w", server.Failure())
			}
			Fail("server: %s", e.Error)
		case <-ctx.Done():
			Check(ctx.Err())
		}
	}
}
