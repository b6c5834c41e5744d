package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/report"
	"multiedge/bench/workload"
)

// Plan is what a person asks for: one test over some message sizes.
type Plan struct {
	// of each measurement; zero: the usual Depth and Batch, DefaultRegion, a second if Count is zero as well
	workload.Spec
	Sizes []int // of messages; empty: the test's usual size
	Conns []int // that share the operations; each size is measured with each number of them; empty: one
}

// DefaultRegion is large enough that no cache holds it.
const DefaultRegion = 256 << 20

// usual is what a test does unless told otherwise.
type usual struct {
	size, depth, batch int
}

var usuals = map[string]usual{
	report.OneWay:   {65536, 128, 1},
	report.TwoWay:   {65536, 128, 1},
	report.PingPong: {8, 1, 1},
	report.Read:     {65536, 64, 1},
	report.Rate:     {8, 512, 32},
	report.Atomic:   {8, 128, 1},

	report.SendLatency: {8, 1, 1},
	report.SendRate:    {8, 512, 32},
}

// Large messages need fewer in flight: flightBytes keep every link of a lab busy, and a slow link is not left with
// seconds of work when the time is over. leastDepth is the depth of the largest.
const (
	flightBytes = 16 << 20
	leastDepth  = 4
)

// MaxSize is the largest message of AllSizes.
const MaxSize = 8 << 20

// AllSizes are the message sizes of -a: powers of two from 2 bytes to MaxSize, as in perftest.
func AllSizes() []int { return SizeRange(2, MaxSize) }

// SizeRange returns the powers of two between lo and hi, and both of them.
func SizeRange(lo, hi int) []int {
	sizes := []int{lo}
	for s := 1; s < hi; s *= 2 {
		if s > lo {
			sizes = append(sizes, s)
		}
	}
	if hi > lo {
		sizes = append(sizes, hi)
	}
	return sizes
}

// Specs returns the measurements of a plan.
func (p *Plan) Specs() ([]workload.Spec, error) {
	u, ok := usuals[p.Test]
	if !ok {
		return nil, fmt.Errorf("test %q: want one of %v", p.Test, workload.Tests)
	}
	if p.Bidirectional && p.Test == report.PingPong {
		return nil, fmt.Errorf("ping-pong goes both ways by itself: leave out -b")
	}
	sizes := p.Sizes
	if len(sizes) == 0 {
		sizes = []int{u.size}
	}
	var specs []workload.Spec
	for _, size := range sizes {
		s := p.Spec
		s.Size, s.Depth, s.Batch, s.Region = size, u.depth, u.batch, 0 // what both ends have
		if s.Bidirectional && s.Test == report.OneWay {
			s.Test = report.TwoWay
		}
		s.Bidirectional = s.Bidirectional && s.Test != report.TwoWay
		if s.Batch == 1 && s.Depth > 1 {
			s.Depth = min(s.Depth, max(leastDepth, flightBytes/max(size, 1)))
		}
		if p.Depth > 0 && !report.IsLatencyTest(s.Test) {
			s.Depth = p.Depth
		}
		if p.Batch > 0 {
			s.Batch = p.Batch
		}
		s.Batch = min(s.Batch, s.Depth)
		if s.ByteStream = p.ByteStream; s.ByteStream {
			s.Depth, s.Batch, s.Integrity = 1, 1, false
		}
		if s.Count == 0 && s.Duration == 0 {
			s.Duration = time.Second
		}
		for _, n := range p.conns() {
			s.Conns = n
			specs = append(specs, s)
		}
	}
	return specs, nil
}

// conns are the numbers of connections to measure with; 0 stands for the usual one.
func (p *Plan) conns() []int {
	if len(p.Conns) == 0 {
		return []int{0}
	}
	return p.Conns
}

// region is how much memory the plan wants registered for each data region: what was asked for, or more where messages
// need it.
func (p *Plan) region() int {
	r := cmp.Or(p.Region, DefaultRegion)
	if len(p.Sizes) > 0 {
		r = max(r, 2*slices.Max(p.Sizes)+64<<10)
	}
	return r
}

// Concat returns the measurements of several plans as those of one series, and the region they need.
func Concat(plans ...Plan) (specs []workload.Spec, region int, err error) {
	for i := range plans {
		s, err := plans[i].Specs()
		if err != nil {
			return nil, 0, err
		}
		specs = append(specs, s...)
		region = max(region, plans[i].region())
	}
	return specs, region, nil
}

// FitSizes drops sizes of which two do not fit a region of the given size, and says so.
func FitSizes(specs []workload.Spec, region int) (kept []workload.Spec, note string) {
	largest := 0
	for _, s := range specs {
		if s.Size > 0 && 2*s.Size+16<<10 > region {
			continue
		}
		kept = append(kept, s)
		largest = max(largest, s.Size)
	}
	if len(kept) < len(specs) {
		note = fmt.Sprintf("messages larger than %s are left out: two of them do not fit a region of %s",
			report.Bytes(largest), report.Bytes(region))
	}
	return kept, note
}
