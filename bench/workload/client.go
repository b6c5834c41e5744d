package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
)

// Client is the client's side of a series with a server.
type Client struct {
	dev   *edge.Device
	conn  *edge.Conn
	mem   *regions
	side  *side
	probe *Probe
	info  Info

	Region   int      // bytes of the data regions both ends have
	Attached string   // "daemon" or "embedded"
	Notes    []string // what did not go as asked
	Begin    func()   // if set, called when the part of Run that counts begins
}

// DialOptions say what a series is for.
type DialOptions struct {
	Peer      string
	Scheduler string // empty: the daemon's
	service   string // empty: Service
	Specs     []Spec // everything that will be measured: decides which memory is needed
}

// dialTime bounds the attempts to reach a server that may be about to start.
const dialTime = 10 * time.Second

// Dial opens a series with the server at o.Peer. A peer or service that is not there yet is waited for, some seconds.
func Dial(ctx context.Context, a Attach, o DialOptions) (*Client, error) {
	o.service = a.Service
	c := &Client{Attached: "daemon"}
	if a.Embedded {
		c.Attached = "embedded"
	}
	if err := kit.Try(func() { c.dial(ctx, &a, o) }); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) dial(ctx context.Context, a *Attach, o DialOptions) {
	for i := range o.Specs {
		kit.Check(o.Specs[i].check())
	}
	c.dev = kit.Get(a.Open(ctx))
	c.probe = &Probe{c.dev, a.Embedded}
	ours, theirs := needs(o.Specs)
	conns := mostConns(o.Specs)
	c.mem = kit.Get(register(c.dev, ours, min(max(a.Region, minRegion), maxRegion)))
	c.note(c.mem.note)
	p := Params{Protocol: protocol, Region: c.mem.size, Source: theirs.source, Target: theirs.target,
		Heap: theirs.heap, Conns: conns}
	if conns > 1 {
		p.Series = rand.Uint64()
	}
	c.conn = kit.Get(dialPatiently(ctx, c.dev, o, p.encode()))
	setup, cancel := setupContext(ctx, conns)
	defer cancel()
	c.begin(setup)
	c.join(setup, o, p, conns)
}

// dialPatiently dials until the server is there or dialTime has passed.
func dialPatiently(ctx context.Context, d *edge.Device, o DialOptions, data []byte) (*edge.Conn, error) {
	opts := []edge.DialOption{edge.Data(data)}
	if o.Scheduler != "" {
		opts = append(opts, edge.Scheduler(o.Scheduler))
	}
	for give := time.Now().Add(dialTime); ; {
		conn, err := d.Dial(ctx, o.Peer, cmp.Or(o.service, Service), opts...)
		again := errors.Is(err, edge.ErrPeerUnknown) || errors.Is(err, edge.ErrNoService) ||
			errors.Is(err, edge.ErrTimeout)
		if err == nil || !again || time.Now().After(give) {
			if errors.Is(err, edge.ErrNoService) {
				err = fmt.Errorf("%w: run \"edgebench server\" on %s", err, o.Peer)
			}
			return conn, err
		}
		if err := kit.Try(func() { kit.Rest(ctx, 100*time.Millisecond) }); err != nil {
			return nil, err
		}
	}
}

// begin completes the series that was dialled.
func (c *Client) begin(ctx context.Context) {
	var ans answer
	kit.Checkf(json.Unmarshal(c.conn.Data(), &ans), "the service at %s is not an edgebench server", c.conn.Peer())
	if ans.Note != "" {
		c.note("at the server: " + ans.Note)
	}
	c.Region = min(ans.Region, c.mem.size)
	c.side = open(ctx, c.conn, c.mem)
	c.info = c.probe.Read(ctx).Info
}

func (c *Client) note(s string) {
	if s != "" {
		c.Notes = append(c.Notes, s)
	}
}

// Close ends the series and gives everything back.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var err error
	if c.side != nil && c.conn.Err() == nil {
		err = kit.Try(func() { c.side.ch.send(ctx, &message{Bye: true}) })
		c.side.closeLanes()
	}
	if c.conn != nil {
		err = errors.Join(err, c.conn.CloseContext(ctx))
	}
	if errors.Is(err, edge.ErrPeerClosed) {
		err = nil // the server closes as soon as it reads the goodbye
	}
	if c.dev != nil {
		err = errors.Join(err, c.dev.Close())
	}
	return err
}

// closeTime bounds the orderly end of a series.
const closeTime = 2 * time.Second

// Run measures once. spec.Region is filled in. show, if not nil, is told now and then which share of the work is done,
// and the throughput in bytes per second so far. With an error the row, if there is one, holds what is known.
func (c *Client) Run(ctx context.Context, spec Spec, show func(share, throughput float64)) (*report.Row, error) {
	if spec.Region == 0 || spec.Region > c.Region {
		spec.Region = c.Region
	}
	row := c.row(&spec)
	err := kit.Try(func() { c.run(ctx, &spec, show, row) })
	if err != nil {
		row.Error = err.Error()
	}
	return row, err
}

func (c *Client) run(ctx context.Context, spec *Spec, show func(share, throughput float64), row *report.Row) {
	p := c.side.prepare(*spec, true)
	defer p.streams.close()
	c.agree(ctx, p)
	before := c.probe.Read(ctx)
	c.side.show = progressOf(spec, show)
	if c.Begin != nil {
		c.Begin()
	}
	if spec.serverSends() {
		c.side.ch.signal(ctx, immGo, edge.ForwardFence)
	}
	busy, stolen := report.BusySeconds(), report.StolenSeconds()
	out := c.side.execute(ctx, p, true)
	row.StolenCPU = report.StolenSeconds() - stolen
	row.OtherCPU = report.BusySeconds() - busy // less the measurement's own share, see fill
	after := c.probe.Read(ctx)
	m := c.side.ch.receive(ctx)
	switch {
	case m.Done == nil:
		kit.Fail("%w: no report", errProtocol)
	case m.Done.Error != "":
		kit.Fail("server: %s", m.Done.Error)
	}
	fill(row, spec, out, after.Since(before), m.Done)
}

// agree tells the server what comes and waits until it is ready.
func (c *Client) agree(ctx context.Context, p *setup) {
	spec := &p.spec
	setup, cancel := setupContext(ctx, spec.conns())
	defer cancel()
	c.side.reach(setup, spec, true)
	c.side.ch.send(setup, &message{Run: spec})
	m := c.side.ch.receive(setup)
	switch {
	case m.Ready == nil:
		kit.Fail("%w: the server does not say that it is ready", errProtocol)
	case m.Ready.Error != "":
		kit.Fail("server: %s", m.Ready.Error)
	case p.streams != nil:
		p.streams.dial(setup, c.conn, m.Ready.Streams)
	}
}

// progressOf adapts show to a sender's count of messages.
func progressOf(spec *Spec, show func(share, throughput float64)) func(done uint64) {
	if show == nil {
		return nil
	}
	start := time.Now()
	return func(done uint64) {
		used := time.Since(start)
		share := used.Seconds() / max(spec.Duration.Seconds(), 1e-9)
		if spec.Count > 0 {
			share = float64(done) / float64(spec.Count)
		}
		show(min(share, 1), float64(done)*float64(spec.Size)/used.Seconds())
	}
}
