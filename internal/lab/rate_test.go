package lab

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// flood sends frames of the given size from a host at about pace bytes per second (0: as fast as it can) until stop is
// set, past the interface's own discipline like the transport does.
func flood(s *station, to, size int, pace float64, stop *atomic.Bool, done chan<- uint64) {
	batch := make([]linkdrv.TxFrame, 16)
	for i := range batch {
		batch[i].Head = s.frame(to, 0, size)
	}
	sent, start := uint64(0), mono.Now()
	for !stop.Load() {
		if pace > 0 && float64(sent)*float64(size) > pace*mono.Now().Sub(start).Seconds() {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		n, err := s.drv.Send(batch)
		if err != nil {
			s.t.Errorf("send: %v", err)
			break
		}
		sent += uint64(n)
		if n < len(batch) {
			time.Sleep(50 * time.Microsecond)
		}
	}
	done <- sent
}

// throughput measures what arrives over a link in bytes per second once the bucket is empty.
func throughput(t testing.TB, l *Lab, size int, pace float64, settle, span time.Duration) float64 {
	from, to := open(t, l, 0, 0), open(t, l, 0, 1)
	var stop atomic.Bool
	done := make(chan uint64, 1)
	go flood(from, 1, size, pace, &stop, done)
	var begin, first, last mono.Time
	bytes := 0
	to.receive(2*time.Second, func(f []byte) bool {
		now := mono.Now()
		if begin == 0 {
			begin = now
		}
		switch {
		case now.Sub(begin) < settle:
		case first == 0:
			first, last = now, now
		default:
			bytes += len(f)
			last = now
		}
		return first == 0 || now.Sub(first) < span
	})
	stop.Store(true)
	<-done
	return float64(bytes) / last.Sub(first).Seconds()
}

// A shaped link carries its rate, whatever the frame size and though the sender bypasses its own discipline.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		rate      string
		mtu       int
		medium    Medium
		tolerance float64
	}{
		{"1gbit", 9000, Switch, 0.005},
		{"1gbit", 65535, Switch, 0.01},
		{"100mbit", 1500, Switch, 0.005},
		{"500mbit", 9000, Switch, 0.005},
		{"1gbit", 9000, Wire, 0.01},
	} {
		t.Run(fmt.Sprintf("%s mtu %d %v", c.rate, c.mtu, c.medium), func(t *testing.T) {
			want, err := ParseRate(c.rate)
			must(t, err)
			// The machine may be busy with other things, hence another try. Who is a virtual machine may also be
			// without processors, which empties the link: such tries can only show a rate that is too high, and do not
			// count before there are many. Nor do those in which a thread of this test waited for a processor: what was
			// sent late or seen late is taken for a lower or a higher rate.
			for try, disturbed := 1, 0; ; {
				before, waitedBefore := stolen(t), waited(t)
				l := build(t, Spec{MTU: c.mtu, Rates: []string{c.rate}, Medium: c.medium})
				got := throughput(t, l, c.mtu+ethernetHeader, 1.4*float64(want), 20*time.Millisecond,
					400*time.Millisecond)
				off := got/float64(want) - 1
				n, err := l.Link(0).Counters()
				l.Close()
				away, late := stolen(t)-before, waited(t)-waitedBefore
				t.Logf("%.4f Gbit/s, %+.3f %%, %+v, without processors for %v, threads waited %v", got*8/1e9,
					100*off, n, away, late)
				allowed := c.tolerance
				if late > 2*time.Millisecond {
					allowed /= 4 // of many tries one could be right by chance
				}
				overloaded := n.Overflow > n.Received/10 // or the sender had no processor
				switch {
				case err != nil:
					t.Fatal(err)
				case overloaded && math.Abs(off) <= allowed:
					return
				case (off < 0 && away > 10*time.Millisecond || late > 2*time.Millisecond) && disturbed < 100:
					disturbed++
				case try == 8:
					t.Fatalf("%.1f bytes/s, want %d within %.1f %%; counters %+v", got, want, 100*c.tolerance, n)
				default:
					try++
				}
			}
		})
	}
}

// stolen returns for how long this machine's processors together were wanted and not there since it began
// (proc_stat(5), steal, in ticks of 10 ms).
func stolen(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	must(t, err)
	fields := strings.Fields(string(b)) // cpu, user, nice, system, idle, iowait, irq, softirq, steal
	ticks, err := strconv.ParseInt(fields[8], 10, 64)
	must(t, err)
	return time.Duration(ticks) * 10 * time.Millisecond
}

// waited returns for how long the threads of this process together have waited for a processor, as far as the kernel
// tells: for those that exist now (/proc/PID/task/TID/schedstat, the second word, in nanoseconds).
func waited(t *testing.T) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	must(t, err)
	for _, name := range files {
		b, _ := os.ReadFile(name) // the thread may have ended
		if fields := strings.Fields(string(b)); len(fields) > 1 {
			ns, err := strconv.ParseInt(fields[1], 10, 64)
			must(t, err)
			sum += time.Duration(ns)
		}
	}
	return sum
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]uint64{
		"": 0, "1gbit": 125e6, "250mbit": 31_250_000, "2.5Gbit": 312_500_000, "100kbit": 12500, "800000bit": 100_000,
		"100gbit": 12_500_000_000,
	} {
		if got, err := ParseRate(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
		if back, err := ParseRate(formatRate(want)); want > 0 && (err != nil || back != want) {
			t.Errorf("%d is written %q and read %d, %v", want, formatRate(want), back, err)
		}
	}
	for _, s := range []string{"1", "gbit", "1gbps", "-1gbit", "0gbit", "99kbit", "1e9gbit", "infgbit"} {
		if v, err := ParseRate(s); err == nil {
			t.Errorf("%q was accepted as %d", s, v)
		}
	}
}

// How fast a wire without faults forwards what a sender without any flow control offers; sender, wire and receiver are
// three threads.
func BenchmarkWire(b *testing.B) {
	for _, mtu := range []int{1500, 9000, 65535} {
		b.Run(fmt.Sprintf("mtu %d", mtu), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l := build(b, Spec{MTU: mtu, Medium: Wire})
				before := mono.Now()
				got := throughput(b, l, mtu+ethernetHeader, 0, 100*time.Millisecond, time.Second)
				span := mono.Now().Sub(before).Seconds()
				n, err := l.Link(0).Counters()
				must(b, err)
				b.ReportMetric(float64(n.Delivered)*float64(mtu+ethernetHeader)*8/span/1e9, "Gbit/s-forwarded")
				b.ReportMetric(got*8/1e9, "Gbit/s-received")
				b.ReportMetric(float64(n.Missed)/float64(n.Missed+n.Received), "share-missed")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
