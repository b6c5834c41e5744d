package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/internal/mono"
)

// TCP is one kernel TCP stream for each direction over the first link, used the way iperf3 does: blocking calls of a message each on a
// thread of its own, socket buffers left to the kernel's tuning. (More links need MPTCP or a bond.)
type TCP struct{}

func (TCP) Name() string    { return report.TransportTCP }
func (TCP) Variant() string { return "" }
func (TCP) Missing() string { return "" }
func (TCP) Does(test string) bool {
	return test == report.OneWay || test == report.TwoWay || test == report.PingPong
}

// flow is one connected stream between the hosts, and what was sent over it.
type flow struct {
	from, to int // descriptors of the sending and the receiving end
	source   []byte
	target   []byte
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
			return nil, err
		}
		flows = append(flows, f)
	}
	stop := context.AfterFunc(ctx, func() { // wakes blocking calls
		for _, f := range flows {
			unix.Shutdown(f.from, unix.SHUT_RDWR)
		}
	})
	defer stop()
	err := watch(row, func() error {
		if j.Test == report.PingPong {
			return c.pingPong(j, flows[0], row)
		}
		return c.streams(j, flows, row)
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return finish(row), err
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
			cpu, err := pair(&job, func() error { return f.send(j.Size, start.Add(j.Duration)) }, f.receive)
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
	}
	return err
}

// send writes messages until the time is over, then waits until the receiver has everything.
func (f *flow) send(size int, stop mono.Time) error {
	size = max(size, 1)
	for off := 0; mono.Now() < stop; {
		if err := writeAll(f.from, f.source[off:off+size]); err != nil {
			return fmt.Errorf("tcp: %w", err)
		}
		f.bytes += uint64(size)
		if off += size; off+size > len(f.source) {
			off = 0
		}
	}
	if err := unix.Shutdown(f.from, unix.SHUT_WR); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	var b [1]byte
	if n, err := retry(func() (int, error) { return unix.Read(f.from, b[:]) }); n != 1 {
		return fmt.Errorf("tcp: the receiver did not confirm the end: %w", errors.Join(err, errShort))
	}
	return nil
}

// receive reads into successive places until the stream ends, and confirms that.
func (f *flow) receive() error {
	for off := 0; ; {
		n, err := retry(func() (int, error) { return unix.Read(f.to, f.target[off:min(off+1<<20, len(f.target))]) })
		if err != nil {
			return fmt.Errorf("tcp: %w", err)
		}
		if n == 0 {
			_, err := unix.Write(f.to, []byte{1})
			return err
		}
		if off += n; off == len(f.target) {
			off = 0
		}
	}
}

func (c TCP) pingPong(j *Job, f *flow, row *report.Row) error {
	lat := report.NewRecorder()
	size := max(j.Size, 1)
	start := mono.Now()
	var elapsed time.Duration
	client := func() error {
		defer unix.Shutdown(f.from, unix.SHUT_WR)
		stop := start.Add(j.Duration)
		for now, off := mono.Now(), 0; now < stop; {
			if err := errors.Join(writeAll(f.from, f.source[off:off+size]), readAll(f.from, f.target[off:off+size])); err != nil {
				return fmt.Errorf("tcp: %w", err)
			}
			if off += size; off+size > len(f.source) {
				off = 0
			}
			f.bytes += 2 * uint64(size)
			t := mono.Now()
			lat.Record(t.Sub(now))
			now = t
		}
		elapsed = mono.Now().Sub(start)
		return nil
	}
	server := func() error {
		for off := 0; ; {
			if err := readAll(f.to, f.target[off:off+size]); err == errShort {
				return nil
			} else if err != nil {
				return fmt.Errorf("tcp: %w", err)
			}
			if err := writeAll(f.to, f.source[off:off+size]); err != nil {
				return fmt.Errorf("tcp: %w", err)
			}
			if off += size; off+size > len(f.source) {
				off = 0
			}
		}
	}
	var err error
	row.CPU, err = pair(j, client, server)
	row.Seconds, row.Bytes, row.Latency = elapsed.Seconds(), f.bytes, lat.Summary(0.5)
	return err
}

// errShort means that a stream ended between messages.
var errShort = errors.New("the stream ended")

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := retry(func() (int, error) { return unix.Write(fd, b) })
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := retry(func() (int, error) { return unix.Read(fd, b) })
		if err != nil {
			return err
		}
		if n == 0 {
			return errShort
		}
		b = b[n:]
	}
	return nil
}

// newFlow connects a stream on which from sends to to.
func newFlow(j *Job, from, to *lab.Host) (f *flow, err error) {
	f = &flow{from: -1, to: -1}
	defer func() {
		if err != nil {
			f.close()
			f, err = nil, fmt.Errorf("tcp: %w", err)
		}
	}()
	listener := -1
	if err := to.Do(func() (err error) {
		listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return f, err
	}
	defer unix.Close(listener)
	addr := &unix.SockaddrInet4{Addr: to.IP(0).As4()}
	if err := errors.Join(unix.Bind(listener, addr), unix.Listen(listener, 1)); err != nil {
		return f, err
	}
	bound, err := unix.Getsockname(listener)
	if err != nil {
		return f, err
	}
	if err := from.Do(func() (err error) {
		f.from, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return f, err
	}
	if err := unix.Connect(f.from, bound); err != nil {
		return f, err
	}
	if f.to, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC); err != nil {
		return f, err
	}
	if j.Test == report.PingPong {
		err = errors.Join(unix.SetsockoptInt(f.from, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetsockoptInt(f.to, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		if err != nil {
			return f, err
		}
	}
	if f.source, err = memory(j.Region); err != nil {
		return f, err
	}
	f.target, err = memory(j.Region)
	return f, err
}

func (f *flow) close() {
	for _, fd := range []int{f.from, f.to} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	for _, m := range [][]byte{f.source, f.target} {
		if m != nil {
			unix.Munmap(m)
		}
	}
}
