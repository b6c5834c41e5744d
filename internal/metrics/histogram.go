package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"multiedge/internal/hist"
)

// slowestExp is of the last classic bucket, up to 2^4 s: one bucket for each power of two from the first bound of hist
// on. Native ones have no last.
const slowestExp = 4

// histogram is one hist.Histogram as both kinds that Prometheus knows: native where it scrapes protobuf and wants such,
// classic everywhere.
type histogram struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  dto.Histogram
}

func newHistogram(desc *prometheus.Desc, h *hist.Histogram, labels ...string) prometheus.Metric {
	m := &histogram{desc: desc, labels: prometheus.MakeLabelPairs(desc, labels)}
	v := &m.value
	var count uint64
	for i, n := range h.Counts {
		count += n
		if exp := hist.MinExp + i/hist.PerOctave; i%hist.PerOctave == 0 && exp <= slowestExp {
			v.Bucket = append(v.Bucket, &dto.Bucket{UpperBound: new(math.Ldexp(1, exp)), CumulativeCount: new(count)})
		}
	}
	v.SampleCount, v.SampleSum = new(count), new(float64(h.Sum)/1e9)
	v.Schema, v.ZeroThreshold, v.ZeroCount = new(int32(hist.Schema)), new(math.Ldexp(1, hist.MinExp)), new(h.Counts[0])
	v.PositiveSpan, v.PositiveDelta = spans(h.Counts[1:], hist.MinExp*hist.PerOctave+1)
	return m
}

// spans writes buckets in the native way: runs of those that are not empty, each by its distance from the one before,
// and the difference of each count from the one before. first is the number of counts[0], bucket 0 being the one up to
// 1.
func spans(counts []uint64, first int) (runs []*dto.BucketSpan, deltas []int64) {
	next, last := 0, uint64(0)
	for i, n := range counts {
		if n == 0 {
			continue
		}
		if gap := first + i - next; gap != 0 || runs == nil {
			runs = append(runs, &dto.BucketSpan{Offset: new(int32(gap)), Length: new(uint32)})
		}
		*runs[len(runs)-1].Length++
		deltas = append(deltas, int64(n-last))
		next, last = first+i+1, n
	}
	return runs, deltas
}

// Desc implements prometheus.Metric.
func (m *histogram) Desc() *prometheus.Desc { return m.desc }

// Write implements prometheus.Metric.
func (m *histogram) Write(out *dto.Metric) error {
	out.Label, out.Histogram = m.labels, &m.value
	return nil
}
