package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
)

// Attach says how a client or server reaches the transport.
type Attach struct {
	Open     func(ctx context.Context) (*edge.Device, error)
	Service  string                           // offered or dialled; empty: Service
	Embedded bool                             // the transport runs in this process
	Region   int                              // bytes of data regions; what the limits do not allow is reduced
	Log      func(format string, args ...any) // what a person may want to know; nil: nothing
}

func (a *Attach) log(format string, args ...any) {
	if a.Log != nil {
		a.Log(format, args...)
	}
}

// setupTime bounds each step of a series that involves the peer but no benchmark.
const setupTime = 20 * time.Second

// Serve offers the service and runs the server's side of series until ctx ends. Series may overlap; for meaningful
// numbers they should not. started is called once the service is offered.
func Serve(ctx context.Context, a Attach, started func()) error {
	dev, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer dev.Close()
	l, err := dev.Listen(ctx, cmp.Or(a.Service, Service))
	if err != nil {
		return err
	}
	sv := &server{dev: dev, probe: &Probe{dev, a.Embedded}, attach: &a}
	started()
	var series sync.WaitGroup
	defer series.Wait()
	for {
		req, err := l.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		series.Go(func() {
			if err := sv.serve(ctx, req); err != nil && ctx.Err() == nil {
				a.log("client on %s: %v", req.Peer(), err)
			}
		})
	}
}

// server is what the series of Serve share.
type server struct {
	dev    *edge.Device
	probe  *Probe
	attach *Attach
	lobby  lobby
}

// serve handles a request: a further connection of a series, or a series from its beginning to its end.
func (sv *server) serve(ctx context.Context, req *edge.Request) error {
	p, err := parseParams(req.Data())
	if err != nil {
		return errors.Join(err, req.Refuse(err.Error()))
	}
	return kit.Try(func() {
		if p.Joins {
			sv.joins(ctx, req, lobbyKey{req.Peer(), p.Series})
		} else {
			sv.series(ctx, req, &p)
		}
	})
}

// joins accepts a further connection and passes it on to its series.
func (sv *server) joins(ctx context.Context, req *edge.Request, k lobbyKey) {
	setup, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	conn := kit.Get(req.Accept(setup, nil))
	if err := sv.lobby.enter(k, conn); err != nil {
		kit.Check(errors.Join(err, conn.Abort()))
	}
}

// refused ends a series that cannot begin, and tells the client why.
func refused(req *edge.Request, err error) {
	if err != nil {
		kit.Check(errors.Join(err, req.Refuse(err.Error())))
	}
}

// series serves one client until it goes.
func (sv *server) series(ctx context.Context, req *edge.Request, p *Params) {
	further := max(p.Conns, 1) - 1
	var joined <-chan *edge.Conn
	if key := (lobbyKey{req.Peer(), p.Series}); further > 0 {
		var err error
		joined, err = sv.lobby.open(key, further)
		refused(req, err)
		defer sv.lobby.close(key)
	}
	mem, err := register(sv.dev, memory{p.Source, p.Target, p.Heap}, min(p.Region, max(sv.attach.Region, minRegion)))
	refused(req, err)
	err = kit.Try(func() {
		setup, cancel := setupContext(ctx, further)
		defer cancel()
		conn := kit.Get(req.Accept(setup, kit.Get(json.Marshal(answer{Region: mem.size, Note: mem.note}))))
		defer func() {
			end, cancel := context.WithTimeout(context.Background(), closeTime)
			defer cancel()
			_ = conn.CloseContext(end) // what went wrong is known already
		}()
		s := open(setup, conn, mem)
		defer s.closeLanes()
		s.join(setup, joined, further)
		sv.attach.log("client on %s: regions of %s, %s", conn.Peer(), report.Bytes(mem.size),
			report.Plural(further+1, "connection"))
		s.serve(ctx, sv.probe)
	})
	kit.Check(errors.Join(err, mem.close()))
}

// open exchanges memory with the peer and returns the series's side.
func open(ctx context.Context, conn *edge.Conn, mem *regions) *side {
	_, err := mem.control.Export(conn, controlName, edge.RemoteWrite, 0, inboxSize)
	kit.Checkf(err, "exporting %s", controlName)
	exportData(conn, mem)
	remote := importOf(ctx, conn, controlName)
	return &side{ch: &channel{conn: conn, local: mem.control, remote: remote}, lanes: []lane{{conn: conn}}, mem: mem}
}

// reach imports the data regions a measurement needs of the peer, on each connection that it uses.
func (s *side) reach(ctx context.Context, spec *Spec, client bool) {
	wantSource := spec.Test == report.Read && (client || spec.serverSends())
	wantTarget := spec.Test != report.Read && !spec.ByteStream && (client || spec.serverSends() ||
		spec.Test == report.PingPong)
	kit.Each(ctx, spec.conns(), laneWorkers,
		func(ctx context.Context, i int) { s.lanes[i].reach(ctx, wantSource, wantTarget) })
}

// serve answers the client's requests until it says goodbye or goes away.
func (s *side) serve(ctx context.Context, probe *Probe) {
	for {
		var m *message
		err := kit.Try(func() { m = s.ch.receive(ctx) })
		if errors.Is(err, edge.ErrPeerClosed) {
			return
		}
		kit.Check(err)
		switch {
		case m.Bye:
			return
		case m.Run == nil:
			kit.Fail("%w: a message that asks for nothing", errProtocol)
		}
		s.serveRun(ctx, *m.Run, probe)
	}
}

// serveRun measures once. An error means that the series is over.
func (s *side) serveRun(ctx context.Context, spec Spec, probe *Probe) {
	var p *setup
	var before *Reading
	defer func() {
		if p != nil {
			p.streams.close()
		}
	}()
	if err := kit.Try(func() { p = s.readyFor(ctx, &spec); before = probe.Read(ctx) }); err != nil {
		s.ch.send(ctx, &message{Ready: &ready{Error: err.Error()}})
		return
	}
	s.ch.send(ctx, &message{Ready: &ready{Streams: p.streams.service()}})
	var r *Report
	err := kit.Try(func() { r = s.measure(ctx, p, before, probe) })
	if err != nil {
		r = &Report{Error: err.Error()}
	}
	sent := kit.Try(func() { s.ch.send(ctx, &message{Done: r}) })
	kit.Check(cmp.Or(err, sent))
}

// measure does the server's part and reports it.
func (s *side) measure(ctx context.Context, p *setup, before *Reading, probe *Probe) *Report {
	p.streams.accept(ctx)
	if p.spec.serverSends() {
		s.ch.awaitGo(ctx)
	}
	out := s.execute(ctx, p, false)
	u := probe.Read(ctx).Since(before)
	return &Report{Sent: out.sent, Seconds: out.elapsed.Seconds(), Counted: u.Counted, Integrity: out.integrity,
		Links: u.links, Notes: out.notes}
}

// readyFor prepares memory and what a measurement needs of the peer.
func (s *side) readyFor(ctx context.Context, spec *Spec) *setup {
	kit.Check(spec.check())
	if spec.conns() > len(s.lanes) {
		kit.Fail("%d connections are wanted, %d are open", spec.conns(), len(s.lanes))
	}
	if spec.Region > s.mem.size {
		kit.Fail("regions of %d bytes are wanted, %d are registered", spec.Region, s.mem.size)
	}
	s.reach(ctx, spec, false)
	p := s.prepare(*spec, false)
	if err := kit.Try(func() { p.streams.listen(ctx, s.ch.conn) }); err != nil {
		p.streams.close()
		kit.Check(err)
	}
	return p
}
