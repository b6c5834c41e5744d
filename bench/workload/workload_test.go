package workload

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server and what a client needs to reach it, on a network in memory.
func world(t *testing.T) Attach {
	t.Helper()
	fab := fabric.New()
	ctx, cancel := context.WithCancel(context.Background())
	attach := func(name string) Attach {
		return Attach{
			Embedded: true, Region: 1 << 20, Log: t.Logf,
			Open: func(ctx context.Context) (*edge.Device, error) {
				return fab.OpenConfig(ctx, name, edge.Config{Wait: edge.Block})
			},
		}
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- Serve(ctx, attach("server"), func() { close(started) }) }()
	select {
	case <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		fab.Close()
	})
	return attach("client")
}

func dial(t *testing.T, a Attach, specs ...Spec) *Client {
	t.Helper()
	c, err := Dial(t.Context(), a, DialOptions{Peer: "server", Specs: specs})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Every test at every kind of size, with checking, in one series: nothing is wrong, and the numbers fit together.
func TestAllTestsIntact(t *testing.T) {
	var specs []Spec
	for _, test := range Tests {
		checks := test != report.Atomic && test != report.SendLatency && test != report.SendRate
		for _, size := range []int{0, 1, 8, 24, 25, 4096, 60_000} {
			for _, integrity := range []bool{true, false} {
				if integrity && !checks || test == report.Atomic && size != 8 {
					continue
				}
				s := Spec{Test: test, Size: size, Count: 60, Depth: 16, Batch: 1, Integrity: integrity, Seed: 7}
				if test == report.Rate {
					s.Batch = 8
				}
				specs = append(specs, s)
			}
		}
	}
	specs = append(specs, Spec{Test: report.OneWay, Size: 3000, Duration: 30 * time.Millisecond, Depth: 8, Batch: 1,
		Integrity: true, Bidirectional: true})
	specs = append(specs, Spec{Test: report.Read, Size: 3000, Count: 100, Depth: 8, Batch: 1, Integrity: true,
		Bidirectional: true})
	for _, test := range []string{report.OneWay, report.TwoWay, report.Read, report.Rate} {
		for _, integrity := range []bool{true, false} {
			s := Spec{Test: test, Size: 2000, Count: 200, Depth: 16, Batch: 1, Conns: 20, Integrity: integrity, Seed: 7}
			if test == report.Rate {
				s.Size, s.Batch = 8, 4
			}
			specs = append(specs, s)
		}
	}
	c := dial(t, world(t), specs...)
	for _, s := range specs {
		began := time.Now()
		r, err := c.Run(t.Context(), s, nil)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		t.Logf("%-9s %6d bytes, checked %-5v: %4d ms in all, %.3f ms measured, p50 %s, p99 %s", s.Test, s.Size,
			s.Integrity, time.Since(began).Milliseconds(), r.Seconds*1e3, report.Nanos(r.Latency.P50),
			report.Nanos(r.Latency.P99))
		check(t, &s, r)
	}
}

func check(t *testing.T, s *Spec, r *report.Row) {
	t.Helper()
	want := s.Count
	if s.serverSends() || s.Test == report.PingPong || s.Test == report.SendLatency {
		want *= 2
	}
	if s.Count > 0 && r.Operations != want || s.Count == 0 && r.Operations == 0 {
		t.Errorf("%+v: %d operations, want %d", s, r.Operations, want)
	}
	if r.IntegrityErrors != 0 || r.IntegrityChecked != s.Integrity {
		t.Errorf("%+v: checked %v, %d errors: %v", s, r.IntegrityChecked, r.IntegrityErrors, r.IntegrityDetail)
	}
	if r.Bytes != r.Operations*uint64(s.Size) || r.Seconds <= 0 || r.FramesSent == 0 || r.Latency.Count == 0 ||
		r.Links != 1 || r.MTU != 9000 || r.Connections != s.conns() {
		t.Errorf("%+v: row does not add up: %+v", s, r)
	}
}

// Byte streams, several measurements in one series: both ends count the same.
func TestByteStreams(t *testing.T) {
	var specs []Spec
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		for _, size := range []int{1, 4096, 300_000} {
			specs = append(specs, Spec{Test: test, Size: size, Duration: 20 * time.Millisecond, Depth: 1, Batch: 1,
				ByteStream: true})
		}
	}
	c := dial(t, world(t), specs...)
	if c.mem.source != nil || c.mem.target != nil {
		t.Error("memory was registered that streams do not need")
	}
	for _, s := range specs {
		r, err := c.Run(t.Context(), s, nil)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if r.Operations == 0 || r.Bytes != r.Operations*uint64(s.Size) || r.Throughput <= 0 ||
			r.Seconds < s.Duration.Seconds() || r.QueueDepth != 1 || r.FramesSent == 0 {
			t.Errorf("%+v: row does not add up: %+v", s, r)
		}
		if ping := s.Test == report.PingPong; ping != (r.Latency.Count > 0) || ping &&
			r.Operations != 2*r.Latency.Count {
			t.Errorf("%+v: %d latencies of %d operations", s, r.Latency.Count, r.Operations)
		}
	}
}

// Byte streams from and into registered memory.
func TestRegisteredByteStreams(t *testing.T) {
	var specs []Spec
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		for _, size := range []int{1, 300_000} {
			specs = append(specs, Spec{Test: test, Size: size, Duration: 20 * time.Millisecond, Depth: 1, Batch: 1,
				ByteStream: true, Registered: true})
		}
	}
	c := dial(t, world(t), specs...)
	for _, s := range specs {
		r, err := c.Run(t.Context(), s, nil)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if r.Operations == 0 || r.Bytes != r.Operations*uint64(s.Size) || r.Seconds < s.Duration.Seconds() {
			t.Errorf("%+v: row does not add up: %+v", s, r)
		}
	}
}

// A server that sends begins when the client does.
func TestServerBeginsWithTheClient(t *testing.T) {
	s := Spec{Test: report.TwoWay, Size: 1000, Count: 8, Depth: 1, Batch: 1, Integrity: true}
	c := dial(t, world(t), s)
	c.Begin = func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if n, err := c.conn.WaitNotify(ctx); err == nil {
			t.Errorf("the server sent %#x before the client began", n.Imm)
		}
	}
	if r, err := c.Run(t.Context(), s, nil); err != nil || r.Operations != 16 {
		t.Errorf("%d operations, %v", r.Operations, err)
	}
}

// A measurement that is cancelled ends, at both ends.
func TestCancelledByteStreams(t *testing.T) {
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		t.Run(test, func(t *testing.T) {
			s := Spec{Test: test, Size: 1000, Duration: time.Hour, Depth: 1, Batch: 1, ByteStream: true}
			c := dial(t, world(t), s)
			ctx, cancel := context.WithCancel(t.Context())
			c.Begin = cancel
			if _, err := c.Run(ctx, s, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// A server that fails says why before it closes the series.
func TestServerSaysWhyItFailed(t *testing.T) {
	s := Spec{Test: report.PingPong, Size: 1000, Duration: time.Hour, Depth: 1, Batch: 1, ByteStream: true,
		Region: 1 << 20}
	c, err := Dial(t.Context(), world(t), DialOptions{Peer: "server", Specs: []Spec{s}})
	must(t, err)
	defer c.Close() // the server may have closed the series by then
	p := c.side.prepare(s, true)
	defer p.streams.close()
	c.agree(t.Context(), p)
	stream := p.streams.ends[0].Conn
	if _, err := stream.Write(make([]byte, 999)); err != nil {
		t.Fatal(err)
	}
	must(t, stream.CloseWrite())
	m := c.side.ch.receive(t.Context())
	if m.Done == nil || m.Done.Error != io.ErrUnexpectedEOF.Error() {
		t.Errorf("%+v", m)
	}
}

func TestProgressIsShown(t *testing.T) {
	s := Spec{Test: report.OneWay, Size: 100, Duration: 20 * time.Second, Depth: 8, Batch: 1}
	c := dial(t, world(t), s)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var shares []float64
	if _, err := c.Run(ctx, s, func(share, throughput float64) {
		if shares = append(shares, share); len(shares) == 3 {
			enough()
		}
	}); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(shares) < 2 || shares[0] <= 0 || shares[len(shares)-1] > 1 {
		t.Errorf("progress %v", shares)
	}
}

func TestServerRefusesNonsenseAndLives(t *testing.T) {
	a := world(t)
	s := Spec{Test: report.OneWay, Size: 2 << 20, Count: 1, Depth: 1, Batch: 1}
	c := dial(t, a, s)
	if _, err := c.Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "--region") {
		t.Errorf("a message larger than the region: %v", err)
	}
	s.Size = 100
	if r, err := c.Run(t.Context(), s, nil); err != nil || r.Operations != 1 {
		t.Errorf("the series did not survive: %v", err)
	}
}

func TestDialReportsMissingServer(t *testing.T) {
	a := world(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, a, DialOptions{Peer: "nobody", Specs: []Spec{{Test: report.OneWay, Count: 1, Depth: 1,
		Batch: 1}}})
	if err == nil {
		t.Fatal("dialled a node that is not there")
	}
}

func TestSpecCheck(t *testing.T) {
	good := Spec{Test: report.OneWay, Size: 8, Count: 1, Depth: 4, Batch: 4}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Spec){
		"test": func(s *Spec) { s.Test = "fast" }, "size": func(s *Spec) { s.Size = -1 },
		"nothing to do": func(s *Spec) { s.Count = 0 },
		"depth":         func(s *Spec) { s.Depth = 0 }, "batch": func(s *Spec) { s.Batch = 5 },
		"connections": func(s *Spec) { s.Conns = MaxConns + 1 }, "ping-pong": func(s *Spec) {
			s.Test,
				s.Conns = report.PingPong, 2
		},
		"reads of a stream": func(s *Spec) { s.ByteStream, s.Test, s.Count, s.Duration = true, report.Read, 0, 1 },
		"registered writes": func(s *Spec) { s.Registered = true },
		"a stream checked":  func(s *Spec) { s.ByteStream, s.Integrity, s.Count, s.Duration = true, true, 0, 1 },
	} {
		s := good
		change(&s)
		if s.check() == nil {
			t.Errorf("%s: accepted %+v", name, s)
		}
	}
}

func TestParamsFitPrivateData(t *testing.T) {
	p := Params{Protocol: protocol, Region: maxRegion, Source: true, Target: true, Conns: MaxConns, Series: 1<<64 - 1,
		Joins: true}
	if b := p.encode(); len(b) > 512 {
		t.Errorf("%d bytes", len(b))
	}
	for _, bad := range []string{"", "{}", `{"protocol":99,"region":1048576}`, `{"protocol":3,"region":-5}`,
		`{"protocol":3,"region":1}`, `{"protocol":3,"region":1048576,"conns":100000}`} {
		if _, err := parseParams([]byte(bad)); err == nil {
			t.Errorf("parameters %q were accepted", bad)
		}
	}
}

func TestAdvanceIgnoresOldNews(t *testing.T) {
	for _, c := range []struct{ base, news, want uint64 }{
		{0, 5, 5}, {5, 5, 5}, {100, 90, 100}, {immMask, 3, immMask + 4}, {3 << immBits, immMask, 3 << immBits},
	} {
		if got := advance(c.base, c.news&immMask); got != c.want {
			t.Errorf("advance(%#x, %#x) = %#x, want %#x", c.base, c.news, got, c.want)
		}
	}
}

// A connection that joins no series of the server is ended, and the server lives on.
func TestStrayConnectionIsRefused(t *testing.T) {
	a := world(t)
	d, err := a.Open(t.Context())
	must(t, err)
	defer d.Close()
	p := Params{Protocol: protocol, Region: minRegion, Series: 5, Joins: true}
	c, err := dialPatiently(t.Context(), d, DialOptions{Peer: "server"}, p.encode())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.WaitNotify(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the connection lives: %v", err)
	}
}

// Bytes that change on the way are found at the other end.
func TestReceiverFindsWrongBytes(t *testing.T) {
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		t.Run(test, func(t *testing.T) {
			s := Spec{Test: test, Size: 5000, Count: 50, Depth: 4, Batch: 1, Integrity: true, Seed: 3}
			c := dial(t, world(t), s)
			s.Region = c.Region
			c.side.afterPrepare = func(p *setup) {
				b := c.mem.source.Bytes()
				b[p.from.Off(1)+4999] ^= 0x10 // the last byte of slot 1
			}
			r, err := c.Run(t.Context(), s, nil)
			must(t, err)
			if r.IntegrityErrors == 0 || !strings.Contains(strings.Join(r.IntegrityDetail, "\n"),
				"1 of 5000 bytes wrong, the first at byte 4999") {
				t.Errorf("%d errors, %q", r.IntegrityErrors, r.IntegrityDetail)
			}
		})
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
