package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"multiedge/bench/pattern"
	"multiedge/bench/report"
	"multiedge/edge"
)

// Attach says how a client or server reaches the transport.
type Attach struct {
	Open     func(ctx context.Context) (*edge.Device, error)
	Embedded bool                             // the transport runs in this process
	Region   int                              // bytes of data regions; what the limits do not allow is reduced
	Log      func(format string, args ...any) // what a person may want to know; nil: nothing
}

func (a *Attach) log(format string, args ...any) {
	if a.Log != nil {
		a.Log(format, args...)
	}
}

// setupTime bounds each step of a session that involves the peer but no benchmark.
const setupTime = 20 * time.Second

// Serve offers the service and runs the server's side of sessions until ctx ends. Sessions may overlap; for meaningful numbers they should
// not. started is called once the service is offered.
func Serve(ctx context.Context, a Attach, started func()) error {
	dev, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer dev.Close()
	l, err := dev.Listen(ctx, Service)
	if err != nil {
		return err
	}
	probe := &Probe{dev, a.Embedded}
	started()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		req, err := l.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		sessions.Go(func() {
			if err := serveRequest(ctx, dev, probe, &a, req); err != nil && ctx.Err() == nil {
				a.log("client on %s: %v", req.Peer(), err)
			}
		})
	}
}

func serveRequest(ctx context.Context, dev *edge.Device, probe *Probe, a *Attach, req *edge.Request) (err error) {
	p, err := parseParams(req.Data())
	if err != nil {
		return errors.Join(err, req.Refuse(err.Error()))
	}
	mem, err := register(dev, memory{p.Source, p.Target}, min(p.Region, max(a.Region, minRegion)))
	if err != nil {
		return errors.Join(err, req.Refuse(err.Error()))
	}
	defer func() { err = errors.Join(err, mem.close()) }()
	data, err := json.Marshal(answer{Region: mem.size, Note: mem.note})
	if err != nil {
		return err
	}
	setup, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	conn, err := req.Accept(setup, data)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = conn.CloseContext(end) // what went wrong is known already
	}()
	s, err := open(setup, conn, mem)
	if err != nil {
		return err
	}
	a.log("client on %s: regions of %d MiB", conn.Peer(), mem.size>>20)
	return s.serve(ctx, probe)
}

// open exchanges memory with the peer and returns the session's side.
func open(ctx context.Context, conn *edge.Conn, mem *regions) (*side, error) {
	exports := []struct {
		region *edge.Region
		name   string
		perm   edge.Perm
		off, n int
	}{
		{mem.control, controlName, edge.RemoteWrite, 0, inboxSize},
		{mem.source, sourceName, edge.RemoteRead, pattern.Guard, mem.size - 2*pattern.Guard},
		{mem.target, targetName, edge.RemoteWrite, pattern.Guard, mem.size - 2*pattern.Guard},
	}
	for _, e := range exports {
		if e.region == nil {
			continue
		}
		if _, err := e.region.Export(conn, e.name, e.perm, e.off, e.n); err != nil {
			return nil, fmt.Errorf("exporting %s: %w", e.name, err)
		}
	}
	remote, err := conn.Import(ctx, controlName)
	if err != nil {
		return nil, fmt.Errorf("importing the peer's %s region: %w", controlName, err)
	}
	return &side{ch: &channel{conn: conn, local: mem.control, remote: remote}, mem: mem}, nil
}

// reach imports the data regions a measurement needs of the peer.
func (s *side) reach(ctx context.Context, spec *Spec, client bool) (err error) {
	wantSource := spec.Test == report.Read && (client || spec.serverSends())
	wantTarget := spec.Test != report.Read && (client || spec.serverSends() || spec.Test == report.PingPong)
	if wantSource && s.source == nil {
		if s.source, err = s.ch.conn.Import(ctx, sourceName); err != nil {
			return fmt.Errorf("importing the peer's %s region: %w", sourceName, err)
		}
	}
	if wantTarget && s.target == nil {
		if s.target, err = s.ch.conn.Import(ctx, targetName); err != nil {
			return fmt.Errorf("importing the peer's %s region: %w", targetName, err)
		}
	}
	return nil
}

// serve answers the client's requests until it says goodbye or goes away.
func (s *side) serve(ctx context.Context, probe *Probe) error {
	for {
		m, err := s.ch.receive(ctx)
		switch {
		case errors.Is(err, edge.ErrPeerClosed):
			return nil
		case err != nil:
			return err
		case m.Bye:
			return nil
		case m.Run == nil:
			return fmt.Errorf("%w: a message that asks for nothing", errProtocol)
		}
		if err := s.serveRun(ctx, *m.Run, probe); err != nil {
			return err
		}
	}
}

// serveRun measures once. An error means that the session is over.
func (s *side) serveRun(ctx context.Context, spec Spec, probe *Probe) error {
	p, before, err := s.readyFor(ctx, &spec, probe)
	if err != nil {
		return s.ch.send(ctx, &message{Ready: &ready{Error: err.Error()}})
	}
	if err := s.ch.send(ctx, &message{Ready: &ready{}}); err != nil {
		return err
	}
	out, err := s.execute(ctx, p, false)
	if err != nil {
		return err
	}
	after, err := probe.Read(ctx)
	if err != nil {
		return err
	}
	u := after.since(before)
	return s.ch.send(ctx, &message{Done: &Report{
		Sent: out.sent, Seconds: out.elapsed.Seconds(), CPU: u.cpu, Counters: u.counters, Dropped: u.dropped, Integrity: out.integrity, Links: u.links, Notes: out.notes,
	}})
}

// readyFor prepares memory and takes the first reading.
func (s *side) readyFor(ctx context.Context, spec *Spec, probe *Probe) (*setup, *Reading, error) {
	if err := spec.check(); err != nil {
		return nil, nil, err
	}
	if spec.Region > s.mem.size {
		return nil, nil, fmt.Errorf("regions of %d bytes are wanted, %d are registered", spec.Region, s.mem.size)
	}
	if err := s.reach(ctx, spec, false); err != nil {
		return nil, nil, err
	}
	p, err := s.prepare(*spec, spec.serverSends(), true)
	if err != nil {
		return nil, nil, err
	}
	before, err := probe.Read(ctx)
	return p, before, err
}
