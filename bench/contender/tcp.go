package contender

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"multiedge/bench/bytestream"
	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/internal/mono"
)

// TCP is one kernel TCP stream for each direction over the first link, used the way iperf3 does: blocking calls of a
// message each on a thread of its own, socket buffers left to the kernel's tuning. (More links need MPTCP or a bond.)
type TCP struct{}

func (TCP) Name() string    { return report.TransportTCP }
func (TCP) Variant() string { return "" }
func (TCP) Missing() string { return "" }
func (TCP) Does(test string) bool {
	return test == report.OneWay || test == report.TwoWay || test == report.PingPong
}

// flow is one connected stream between the hosts, and what was sent over it.
type flow struct {
	from, to *bytestream.End // the sending and the receiving one
	bytes    uint64
}

// Run implements Contender.
func (c TCP) Run(ctx context.Context, j *Job) (*report.Row, error) {
	row := j.row(c)
	flows := []*flow{}
	defer func() {
		for _, f := range flows {
			f.close()
		}
	}()
	for dir := range 2 {
		if dir == 1 && j.Test != report.TwoWay {
			break
		}
		f, err := newFlow(j, j.Hosts[dir], j.Hosts[1-dir])
		if err != nil {
			return nil, fmt.Errorf("tcp: %w", err)
		}
		flows = append(flows, f)
	}
	stop := context.AfterFunc(ctx, func() { // wakes blocking calls
		for _, f := range flows {
			unix.Shutdown(int(f.from.Conn.(socket)), unix.SHUT_RDWR)
		}
	})
	defer stop()
	err := watch(row, func() error {
		if j.Test == report.PingPong {
			return c.pingPong(j, flows[0], row)
		}
		return c.streams(j, flows, row)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return finish(row), nil
}

// streams runs each flow with a thread at either end.
func (c TCP) streams(j *Job, flows []*flow, row *report.Row) error {
	start := mono.Now()
	type result struct {
		cpu report.CPU
		err error
	}
	results := make(chan result, len(flows))
	for dir, f := range flows {
		go func() {
			job := *j
			if dir == 1 {
				job.CPUs[0], job.CPUs[1] = j.CPUs[1], j.CPUs[0]
			}
			cpu, err := pair(&job, func() error { return f.send(j.Size, start.Add(j.Duration)) }, f.to.Receive)
			if dir == 1 {
				cpu.Client, cpu.Server = cpu.Server, cpu.Client
			}
			results <- result{cpu, err}
		}()
	}
	var err error
	for range flows {
		r := <-results
		err = errors.Join(err, r.err)
		row.CPU.Client.ProcessUser += r.cpu.Client.ProcessUser
		row.CPU.Client.ProcessSystem += r.cpu.Client.ProcessSystem
		row.CPU.Server.ProcessUser += r.cpu.Server.ProcessUser
		row.CPU.Server.ProcessSystem += r.cpu.Server.ProcessSystem
	}
	row.CPU = report.Ends(row.CPU.Client, row.CPU.Server)
	row.Seconds = mono.Now().Sub(start).Seconds()
	for _, f := range flows {
		row.Bytes += f.bytes
		if j.Test == report.TwoWay {
			row.EachWay = append(row.EachWay, float64(f.bytes))
		}
	}
	return err
}

func (f *flow) send(size int, stop mono.Time) error {
	n, err := f.from.Send(stop)
	f.bytes = n * uint64(max(size, 1))
	return err
}

func (c TCP) pingPong(j *Job, f *flow, row *report.Row) (err error) {
	lat := report.NewRecorder()
	start := mono.Now()
	row.CPU, err = pair(j, func() error {
		n, err := f.from.Ping(start.Add(j.Duration), lat)
		row.Seconds, row.Bytes = mono.Now().Sub(start).Seconds(), 2*n*uint64(max(j.Size, 1))
		return err
	}, func() error {
		_, err := f.to.Pong()
		return err
	})
	row.Latency = lat.Summary(0.5)
	return err
}

// socket is a connected TCP socket that blocks the thread.
type socket int

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Read implements bytestream.Conn.
func (s socket) Read(p []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(s), p) })
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write implements bytestream.Conn.
func (s socket) Write(p []byte) (done int, err error) {
	for done < len(p) && err == nil {
		var n int
		n, err = retry(func() (int, error) { return unix.Write(int(s), p[done:]) })
		done += n
	}
	return done, err
}

// CloseWrite implements bytestream.Conn.
func (s socket) CloseWrite() error { return unix.Shutdown(int(s), unix.SHUT_WR) }

// Close implements bytestream.Conn.
func (s socket) Close() error { return unix.Close(int(s)) }

// newFlow connects a stream on which from sends to to.
func newFlow(j *Job, from, to *lab.Host) (*flow, error) {
	echo := j.Test == report.PingPong
	f := &flow{}
	var err error
	if f.from, err = bytestream.NewEnd(j.Size, j.Region, true, echo); err == nil {
		f.to, err = bytestream.NewEnd(j.Size, j.Region, echo, true)
	}
	if err == nil {
		err = f.connect(from, to, echo)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// connect connects the ends. With noDelay, TCP does not hold back a short message.
func (f *flow) connect(from, to *lab.Host, noDelay bool) error {
	listener, err := newSocket(to)
	if err != nil {
		return err
	}
	defer listener.Close()
	addr := &unix.SockaddrInet4{Addr: to.IP(0).As4()}
	if err := errors.Join(unix.Bind(int(listener), addr), unix.Listen(int(listener), 1)); err != nil {
		return err
	}
	bound, err := unix.Getsockname(int(listener))
	if err != nil {
		return err
	}
	client, err := newSocket(from)
	if err != nil {
		return err
	}
	f.from.Conn = client
	if err := unix.Connect(int(client), bound); err != nil {
		return err
	}
	server, _, err := unix.Accept4(int(listener), unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	f.to.Conn = socket(server)
	if !noDelay {
		return nil
	}
	return errors.Join(unix.SetsockoptInt(int(client), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(server, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
}

// newSocket returns a socket in a host.
func newSocket(h *lab.Host) (socket, error) {
	fd := -1
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return socket(fd), err
}

func (f *flow) close() {
	for _, e := range []*bytestream.End{f.from, f.to} {
		if e != nil {
			e.Close()
		}
	}
}
