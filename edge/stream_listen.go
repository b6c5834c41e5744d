package edge

import (
	"context"
	"fmt"
	"net"
	"strings"

	"multiedge/internal/ipc"
)

// How a stream begins (clause 11.2): both ends say streamHello in the private data of the connection request and its
// answer, and then export their rings. Nobody waits for the peer's ring before the first Write, so that a peer which
// never exports one keeps no Accept waiting.
const (
	streamHello   = "stream/1"
	streamRing    = "stream" // the name of the exported ring
	streamNetwork = "edge"
)

// StreamAddr is the address of an end of a Stream, or of a StreamListener. Both ends of a stream are named by the
// service that was dialled.
type StreamAddr struct {
	Node    string
	Service string
}

// Network returns "edge".
func (a StreamAddr) Network() string { return streamNetwork }

// String returns node:service, which net.SplitHostPort takes apart.
func (a StreamAddr) String() string { return net.JoinHostPort(a.Node, a.Service) }

// DialStream connects to a service that the node offers by ListenStream. Of the options, Data takes up to 504 bytes,
// for Stream.Data at the other end. It returns ErrStream if the service has no streams, and the error of
// Device.Register if memory cannot be registered here. If memory cannot be registered at the other end, it returns
// ErrRefused.
func (d *Device) DialStream(ctx context.Context, node, service string, opts ...DialOption) (*Stream, error) {
	var o dialOptions
	for _, opt := range opts {
		opt(&o)
	}
	if most := ipc.MaxData - len(streamHello); len(o.data) > most {
		return nil, invalid("%d bytes of private data; a stream takes at most %d", len(o.data), most)
	}
	o.data = append([]byte(streamHello), o.data...)
	if err := checkNames(node, service, o.data); err != nil {
		return nil, err
	}
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	r, err := a.registerStream(ctx)
	if err != nil {
		return nil, err
	}
	c, err := a.dial(ctx, node, service, &o)
	if err != nil {
		inTime(ctx, func() { r.Close() })
		return nil, err
	}
	s := newStream(c, r, d.cfg.Stream, nil)
	if string(c.Data()) != streamHello {
		s.abandon(ctx)
		return nil, fmt.Errorf("%w (the service %q takes connections: use Dial)", ErrStream, service)
	}
	return s.open(ctx)
}

// registerStream returns the memory of a stream.
func (d *attachment) registerStream(ctx context.Context) (*Region, error) {
	cfg := &d.cfg.Stream
	r, err := d.register(ctx, cfg.ReceiveBuffer+cfg.SendBuffer)
	if err != nil {
		return nil, fmt.Errorf("edge: memory for a stream: %w", err)
	}
	return r, nil
}

// open exports the ring and returns s, or ends it.
func (s *Stream) open(ctx context.Context) (*Stream, error) {
	g, err := s.region.export(ctx, s.c, streamRing, RemoteWrite, 0, s.ring)
	if err != nil {
		s.abandon(ctx)
		return nil, err
	}
	s.export = g
	return s, nil
}

// StreamListener is a net.Listener of Streams. It outlives its daemon, as a Listener does.
type StreamListener struct {
	l *Listener
}

var _ net.Listener = (*StreamListener)(nil)

// ListenStream offers a service on this node to DialStream.
func (d *Device) ListenStream(ctx context.Context, service string) (*StreamListener, error) {
	l, err := d.Listen(ctx, service)
	if err != nil {
		return nil, err
	}
	return &StreamListener{l}, nil
}

// Accept implements net.Listener. The connection it returns is a *Stream.
func (l *StreamListener) Accept() (net.Conn, error) {
	s, err := l.AcceptStream(context.Background())
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: streamNetwork, Addr: l.Addr(), Err: err}
	}
	return s, nil
}

// AcceptStream is Accept that gives up when ctx ends. It skips requests that fail while they are being accepted.
// Requests for which there is no memory are refused, logged (Config.Log) and skipped, too.
func (l *StreamListener) AcceptStream(ctx context.Context) (*Stream, error) {
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
		l.l.d.log().Warn("edge: a stream could not be accepted", "peer", r.Peer(), "service", l.l.service, "reason",
			err)
	}
}

func (l *StreamListener) accept(ctx context.Context, r *Request) (*Stream, error) {
	data, ok := strings.CutPrefix(string(r.Data()), streamHello)
	if !ok {
		r.Refuse("the service takes streams: use DialStream, of the same release")
		return nil, ErrStream
	}
	mem, err := r.conn.d.registerStream(ctx)
	if err != nil {
		r.Refuse(err.Error())
		return nil, err
	}
	s := newStream(r.conn, mem, l.l.d.cfg.Stream, []byte(data))
	if _, err := r.Accept(ctx, []byte(streamHello)); err != nil {
		s.abandon(ctx)
		return nil, err
	}
	return s.open(ctx)
}

// Close withdraws the service and ends Accept with net.ErrClosed. Accepted streams live on.
func (l *StreamListener) Close() error { return l.l.Close() }

// Addr returns the node's name and the service, a StreamAddr.
func (l *StreamListener) Addr() net.Addr { return StreamAddr{l.l.d.Name(), l.l.service} }
