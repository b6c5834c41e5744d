package contender

import (
	"context"
	"os"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/linkdrv"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if err := lab.EnsurePrivileges(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// run has a contender do a job.
func run(ctx context.Context, c Contender, j *Job) (*report.Row, error) {
	return kit.Outcome(func() *report.Row { return c.Run(ctx, j) })
}

// testJob is a job in a lab that is made for it.
func testJob(t *testing.T, spec lab.Spec, test string, size int) *Job {
	t.Helper()
	return testJobIn(testLab(t, spec), spec, test, size)
}

func testLab(t *testing.T, spec lab.Spec) *lab.Lab {
	t.Helper()
	l, err := lab.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func testJobIn(l *lab.Lab, spec lab.Spec, test string, size int) *Job {
	return &Job{Test: test, Size: size, Duration: 60 * time.Millisecond, Warmup: 10 * time.Millisecond, Region: 8 << 20,
		MTU:   spec.MTU,
		Hosts: [2]*lab.Host{l.Host(0), l.Host(1)}}
}

func TestBuiltInContendersMoveBytes(t *testing.T) {
	spec := lab.Spec{Links: 2, MTU: 9000}
	l := testLab(t, spec)
	for _, c := range []Contender{Raw{Kind: linkdrv.KindRing}, Raw{Kind: linkdrv.KindMmsg}, Raw{Kind: linkdrv.KindRing,
		Sealed: true}, Raw{Kind: linkdrv.KindIP}, TCP{}, TLS{}} {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
			for _, size := range []int{8, 100_000} {
				t.Run(c.Name()+c.Variant()+"/"+test+"/"+report.Bytes(size), func(t *testing.T) {
					began := time.Now()
					r, err := run(t.Context(), c, testJobIn(l, spec, test, size))
					took := time.Since(began)
					if err != nil {
						t.Fatal(err)
					}
					if r.Bytes == 0 || r.Throughput <= 0 || r.CPU.Client.Total <= 0 || r.CPU.Server.Total <= 0 ||
						r.Seconds < 0.05 || r.Seconds > took.Seconds() {
						t.Errorf("%d bytes in %.3f s of %v, CPU %.3f and %.3f", r.Bytes, r.Seconds, took,
							r.CPU.Client.Total, r.CPU.Server.Total)
					}
					if (test == report.PingPong) != (r.Latency.Count > 0) {
						t.Errorf("%d latencies", r.Latency.Count)
					}
					// A ring is read without calls (TestRawCalls): a server that seldom finds it empty makes none.
					raw, ok := c.(Raw)
					reads := ok && raw.Kind == linkdrv.KindRing && test == report.OneWay
					if e := r.Efforts; e == nil || e.ClientProcess.SystemCalls == 0 ||
						e.ServerProcess.SystemCalls == 0 && !reads || e.ClientDaemon != (report.Effort{}) {
						t.Errorf("counts of calls %+v", e)
					} else if test == report.PingPong && e.ClientProcess.SystemCalls < r.Latency.Count {
						t.Errorf("%d calls of the client for %d round trips", e.ClientProcess.SystemCalls,
							r.Latency.Count)
					}
					if r.FramesLost > 0 {
						t.Errorf("%d frames lost", r.FramesLost)
					}
					t.Logf("%.2f Gbit/s, p50 %s", r.Throughput*8/1e9, report.Nanos(r.Latency.P50))
				})
			}
		}
	}
}

// Calls of a raw end are those that its drivers make to send and to receive, and each time that it gives way. A frame
// that is found in a ring costs none.
func TestRawCalls(t *testing.T) {
	for _, c := range []struct {
		kind    string
		receive uint64 // calls for a frame
	}{{linkdrv.KindRing, 0}, {linkdrv.KindMmsg, 1}} {
		a, b := &rawNode{}, &rawNode{}
		defer a.close()
		defer b.close()
		job := testJob(t, lab.Spec{Links: 1, MTU: 1500}, report.OneWay, 8)
		if err := kit.Try(func() { Raw{Kind: c.kind}.join(job, [2]*rawNode{a, b}) }); err != nil {
			t.Fatal(err)
		}
		expect := func(what string, atA, atB uint64, do func()) {
			t.Helper()
			before := rawCounts(a, b)
			do()
			after := rawCounts(a, b)
			gotA, gotB := after[0].calls-before[0].calls, after[1].calls-before[1].calls
			if gotA != atA || gotB != atB {
				t.Errorf("%s, %s: %d and %d calls, want %d and %d", c.kind, what, gotA, gotB, atA, atB)
			}
		}
		expect("sending", 1, 0, func() { a.sendMessage(t.Context()) })
		pollable := []unix.PollFd{{Fd: int32(b.links[0].FD()), Events: unix.POLLIN}}
		if n, err := unix.Poll(pollable, 10_000); n != 1 {
			t.Fatalf("%s: no frame arrived: %v", c.kind, err)
		}
		expect("receiving", 0, c.receive, func() {
			if n := b.receive(); n != 1 {
				t.Errorf("%s: %d frames received", c.kind, n)
			}
		})
		expect("giving way", 0, 2, func() {
			for _, looks := range []int{0, 1000, 1001, 5000} { // in vain, in a row
				b.idle(looks)
			}
		})
	}
}

// The window fits the receive ring, which holds fewer frames when they are long.
func TestRawLosesNothingAtAnyMTU(t *testing.T) {
	for _, kind := range []string{linkdrv.KindRing, linkdrv.KindMmsg} {
		for _, mtu := range []int{1500, 65535} {
			j := testJob(t, lab.Spec{Links: 1, MTU: mtu}, report.TwoWay, 1<<20)
			r, err := run(t.Context(), Raw{Kind: kind}, j)
			if err != nil {
				t.Fatal(err)
			}
			if r.Dropped > 0 || r.Throughput <= 0 {
				t.Errorf("%s at MTU %d: %d frames dropped", kind, mtu, r.Dropped)
			}
		}
	}
}

func TestRawEndsDespiteLoss(t *testing.T) {
	j := testJob(t, lab.Spec{Links: 1, MTU: 1500, Faults: lab.Faults{Loss: 0.05}, Seed: 1}, report.OneWay, 8192)
	r, err := run(t.Context(), Raw{}, j)
	if err != nil {
		t.Fatal(err)
	}
	if r.FramesLost == 0 {
		t.Error("no frame was lost at 5 % loss")
	}
}

func TestCancelEndsAtOnce(t *testing.T) {
	for _, c := range []Contender{Raw{}, TCP{}, TLS{}} {
		j := testJob(t, lab.Spec{MTU: 9000}, report.OneWay, 1<<20)
		j.Duration = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		cancelled := make(chan time.Time, 1)
		context.AfterFunc(ctx, func() { cancelled <- time.Now() })
		if _, err := run(ctx, c, j); err == nil {
			t.Errorf("%s: no error", c.Name())
		}
		if d := time.Since(<-cancelled); d > 2*time.Second {
			t.Errorf("%s ended %v after it was cancelled", c.Name(), d)
		}
		cancel()
	}
}
