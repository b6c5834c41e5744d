package stream

import (
	"context"
	"fmt"
	"net"
	"strings"

	"multiedge/edge"
)

// How a stream begins (clause 11.2): both ends say hello in the private data of the connection request and its answer,
// and then export their rings. Nobody waits for the peer's ring before the first Write, so that a peer which never
// exports one keeps no Accept waiting.
const (
	hello    = "stream/1"
	ringName = "stream" // of the exported ring
	network  = "edge"
)

// Addr is the address of an end of a stream, or of a Listener. Both ends of a stream are named by the service that was
// dialled.
type Addr struct {
	Node    string
	Service string
}

// Network returns "edge".
func (a Addr) Network() string { return network }

// String returns node:service, which net.SplitHostPort takes apart.
func (a Addr) String() string { return net.JoinHostPort(a.Node, a.Service) }

// Dial connects to a service that a node offers by Listen, through the local daemon.
func Dial(ctx context.Context, node, service string) (*Conn, error) {
	return Config{}.Dial(ctx, node, service)
}

// Dial is the function Dial with a configuration. It returns ErrProtocol if the service has no streams, and the error
// of Device.Register if memory cannot be registered here. If memory cannot be registered at the other end, it returns
// edge.ErrRefused.
func (cfg Config) Dial(ctx context.Context, node, service string) (*Conn, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	dev, err := cfg.device(ctx)
	if err != nil {
		return nil, err
	}
	opts := []edge.DialOption{edge.Data(append([]byte(hello), cfg.Data...))}
	if cfg.Scheduler != "" {
		opts = append(opts, edge.Scheduler(cfg.Scheduler))
	}
	r, cfg, err := cfg.register(ctx, dev, core.Conns(dev))
	if err != nil {
		return nil, err
	}
	c, err := dev.Dial(ctx, node, service, opts...)
	if err != nil {
		inTime(ctx, func() { r.Close() })
		return nil, err
	}
	s := newConn(c, r, &cfg, nil)
	if string(c.Data()) != hello {
		s.abandon(ctx)
		return nil, fmt.Errorf("%w (the service %q takes connections: use edge.Dial)", ErrProtocol, service)
	}
	return s.open(ctx)
}

// open exports the ring and returns s, or ends it.
func (s *Conn) open(ctx context.Context) (*Conn, error) {
	g, err := core.Export(ctx, s.region, s.c, ringName, edge.RemoteWrite, 0, s.ring)
	if err != nil {
		s.abandon(ctx)
		return nil, err
	}
	s.export = g
	return s, nil
}

// Listener is a net.Listener of streams. It outlives its daemon, as an edge.Listener does.
type Listener struct {
	l   *edge.Listener
	dev *edge.Device
	cfg Config
}

var _ net.Listener = (*Listener)(nil)

// Listen offers a service on this node to Dial, through the local daemon.
func Listen(ctx context.Context, service string) (*Listener, error) {
	return Config{}.Listen(ctx, service)
}

// Listen is the function Listen with a configuration, which all accepted streams have. Data and Scheduler are for Dial.
func (cfg Config) Listen(ctx context.Context, service string) (*Listener, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	dev, err := cfg.device(ctx)
	if err != nil {
		return nil, err
	}
	l, err := dev.Listen(ctx, service)
	if err != nil {
		return nil, err
	}
	return &Listener{l, dev, cfg}, nil
}

// Accept implements net.Listener. The connection it returns is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	s, err := l.AcceptContext(context.Background())
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: network, Addr: l.Addr(), Err: err}
	}
	return s, nil
}

// AcceptContext is Accept that gives up when ctx ends. It skips requests that fail while they are being accepted.
// Requests for which there is no memory are refused, logged (edge.Config.Log) and skipped, too.
func (l *Listener) AcceptContext(ctx context.Context) (*Conn, error) {
	for {
		r, err := l.l.Next(ctx)
		if err != nil {
			return nil, err
		}
		s, err := l.accept(ctx, r)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		core.Log(l.dev).Warn("edge: a stream could not be accepted", "peer", r.Peer(), "service", l.l.Service(),
			"reason", err)
	}
}

func (l *Listener) accept(ctx context.Context, r *edge.Request) (*Conn, error) {
	data, ok := strings.CutPrefix(string(r.Data()), hello)
	if !ok {
		r.Refuse("the service takes streams: dial it by package stream, of the same release")
		return nil, ErrProtocol
	}
	mem, cfg, err := l.cfg.register(ctx, l.dev, core.Conns(l.dev)-1) // this one is among them
	if err != nil {
		r.Refuse(err.Error())
		return nil, err
	}
	c, err := r.Accept(ctx, []byte(hello))
	if err != nil {
		inTime(ctx, func() { mem.Close() })
		return nil, err
	}
	return newConn(c, mem, &cfg, []byte(data)).open(ctx)
}

// Close withdraws the service and ends Accept with net.ErrClosed. Accepted streams live on.
func (l *Listener) Close() error { return l.l.Close() }

// Addr returns the node's name and the service, an Addr.
func (l *Listener) Addr() net.Addr { return Addr{l.dev.Name(), l.l.Service()} }
