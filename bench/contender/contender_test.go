package contender

import (
	"context"
	"os"
	"testing"
	"time"

	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

func TestMain(m *testing.M) {
	if err := lab.EnsurePrivileges(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
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
		Sealed: true}, TCP{}, TLS{}} {
		for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
			for _, size := range []int{8, 100_000} {
				t.Run(c.Name()+c.Variant()+"/"+test+"/"+report.Bytes(size), func(t *testing.T) {
					r, err := c.Run(t.Context(), testJobIn(l, spec, test, size))
					if err != nil {
						t.Fatal(err)
					}
					if r.Bytes == 0 || r.Throughput <= 0 || r.CPU.Client.Total <= 0 || r.CPU.Server.Total <= 0 ||
						r.Seconds < 0.05 || r.Seconds > 2 {
						t.Errorf("%d bytes in %.3f s, CPU %.3f and %.3f", r.Bytes, r.Seconds, r.CPU.Client.Total,
							r.CPU.Server.Total)
					}
					if (test == report.PingPong) != (r.Latency.Count > 0) {
						t.Errorf("%d latencies", r.Latency.Count)
					}
					if e := r.Efforts; e == nil || e.ClientProcess.SystemCalls == 0 ||
						e.ServerProcess.SystemCalls == 0 || e.ClientDaemon != (report.Effort{}) {
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

// The window fits the receive ring, which holds fewer frames when they are long.
func TestRawLosesNothingAtAnyMTU(t *testing.T) {
	for _, kind := range []string{linkdrv.KindRing, linkdrv.KindMmsg} {
		for _, mtu := range []int{1500, 65535} {
			j := testJob(t, lab.Spec{Links: 1, MTU: mtu}, report.TwoWay, 1<<20)
			r, err := Raw{Kind: kind}.Run(t.Context(), j)
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
	r, err := Raw{}.Run(t.Context(), j)
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
		if _, err := c.Run(ctx, j); err == nil {
			t.Errorf("%s: no error", c.Name())
		}
		if d := time.Since(<-cancelled); d > 2*time.Second {
			t.Errorf("%s ended %v after it was cancelled", c.Name(), d)
		}
		cancel()
	}
}
