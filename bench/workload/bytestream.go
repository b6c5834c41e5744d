package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/bytestream"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/stream"
	"multiedge/internal/mono"
)

// streams are what one end of a measurement of byte streams has: one stream whose messages are the client's and, in
// two-way, one whose messages are the server's, each made for the measurement, as TCP's are. The nil streams are those
// of other measurements.
type streams struct {
	ends     []*bytestream.End
	listener *stream.Listener // the server's
}

// newStreams makes an end's memory; there are no streams yet.
func newStreams(spec *Spec, client bool, mem *regions) *streams {
	st := &streams{}
	echo := spec.Test == report.PingPong
	for i := range spec.byteStreams() {
		sends := st.sends(i, client)
		if spec.Registered {
			st.ends = append(st.ends, registeredEnd(spec, mem))
			continue
		}
		e, err := bytestream.NewEnd(spec.Size, spec.Region, sends || echo, !sends || echo)
		if err != nil {
			st.close()
			kit.Check(err)
		}
		st.ends = append(st.ends, e)
	}
	return st
}

// registeredEnd is an end whose memory is that of writes and reads. With Copied it is used as any other would be.
func registeredEnd(spec *Spec, mem *regions) (e *bytestream.End) {
	var source, target []byte
	if mem.source != nil {
		source = mem.source.Bytes()[:spec.Region]
	}
	if mem.target != nil {
		target = mem.target.Bytes()[:spec.Region]
	}
	write := func(off, n int) (int, error) { return e.Conn.(*stream.Conn).WriteRegion(mem.source, off, n) }
	read := func(off, n int) (int, error) { return e.Conn.(*stream.Conn).ReadRegion(mem.target, off, n) }
	if spec.Copied {
		write = func(off, n int) (int, error) { return e.Conn.Write(source[off : off+n]) }
		read = func(off, n int) (int, error) { return io.ReadFull(e.Conn, target[off:off+n]) }
	}
	e = bytestream.NewEndOn(spec.Size, source, target, write, read)
	return e
}

// byteStreams is how many streams s uses.
func (s *Spec) byteStreams() int {
	if s.serverSends() {
		return 2
	}
	return 1
}

// sends reports whether an end sends on stream i.
func (st *streams) sends(i int, client bool) bool { return client == (i == 0) }

// runs numbers the services, so that no measurement meets the streams of another.
var runs atomic.Uint64

// listen offers a service for the streams of the client of c.
func (st *streams) listen(ctx context.Context, c *edge.Conn) {
	if st != nil {
		st.listener = kit.Get(stream.Config{Device: c.Device()}.Listen(ctx,
			fmt.Sprintf("%s-stream-%d", c.Service(), runs.Add(1))))
	}
}

// service is what listen offers.
func (st *streams) service() string {
	if st == nil {
		return ""
	}
	return st.listener.Addr().(stream.Addr).Service
}

// accept waits for the client's streams.
func (st *streams) accept(ctx context.Context) {
	if st == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	for _, e := range st.ends {
		s := kit.Get(st.listener.AcceptContext(ctx))
		e.Conn = s
	}
}

// dial opens streams to the peer of c, one after the other: it accepts them in that order.
func (st *streams) dial(ctx context.Context, c *edge.Conn, service string) {
	for _, e := range st.ends {
		s := kit.Get(stream.Config{Device: c.Device()}.Dial(ctx, c.Peer(), service))
		e.Conn = s
	}
}

// close ends the streams and gives the memory back.
func (st *streams) close() {
	if st == nil {
		return
	}
	if st.listener != nil {
		st.listener.Close() // fails only when the daemon has gone, and the service with it
	}
	for _, e := range st.ends {
		e.Close()
	}
}

// run does one end's part.
func (st *streams) run(ctx context.Context, spec *Spec, client bool) *outcome {
	stop := context.AfterFunc(ctx, func() {
		for _, e := range st.ends {
			_ = e.Conn.(*stream.Conn).SetDeadline(time.Unix(1, 0)) // a stream that is closed waits for nothing
		}
	})
	defer stop()
	out := &outcome{scale: 0.5}
	if spec.Test == report.PingPong && client {
		out.lat, out.post = report.NewRecorder(), report.NewRecorder()
	}
	start := mono.Now()
	until := deadline(spec, start)
	failed := make([]error, len(st.ends))
	var all sync.WaitGroup
	for i, e := range st.ends {
		all.Go(func() {
			failed[i] = kit.Try(func() {
				switch {
				case spec.Test == report.PingPong && client:
					out.sent = e.Ping(until, out.lat)
				case spec.Test == report.PingPong:
					out.sent = e.Pong()
				case st.sends(i, client):
					out.sent = e.Send(until)
				default:
					e.Receive()
				}
			})
		})
	}
	all.Wait()
	out.elapsed = mono.Now().Sub(start)
	kit.Check(cmp.Or(ctx.Err(), errors.Join(failed...)))
	return out
}
