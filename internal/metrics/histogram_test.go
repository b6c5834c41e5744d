package metrics

import (
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"multiedge/internal/hist"
)

// durations are of all lengths, with some at bounds.
func durations() []time.Duration {
	rng := rand.New(rand.NewPCG(3, 4))
	ds := []time.Duration{0, 1, 953, 954, time.Second, time.Second + 1, 16 * time.Second, 16*time.Second + 1, time.Hour}
	for range 5000 {
		ds = append(ds, time.Duration(rng.Uint64()>>(28+rng.UintN(30))))
	}
	return ds
}

func histogramOf(ds []time.Duration) (h hist.Histogram) {
	for _, d := range ds {
		h.Observe(d)
	}
	return h
}

// natives are the counts of the native buckets by number.
func natives(h *dto.Histogram) map[int]int64 {
	counts, i, n, next := map[int]int64{}, 0, int64(0), 0
	for _, run := range h.PositiveSpan {
		i += int(run.GetOffset())
		for range run.GetLength() {
			n += h.PositiveDelta[next]
			if next++; n != 0 {
				counts[i] = n
			}
			i++
		}
	}
	return counts
}

// classics are the cumulative counts of the classic buckets by upper bound, +Inf left out.
func classics(h *dto.Histogram) map[float64]uint64 {
	counts := map[float64]uint64{}
	for _, b := range h.Bucket {
		if !math.IsInf(b.GetUpperBound(), 1) {
			counts[b.GetUpperBound()] = b.GetCumulativeCount()
		}
	}
	return counts
}

func closeTo(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }

// What the client library makes of the same durations is what we export.
func TestHistogramAsClientLibrary(t *testing.T) {
	for _, ds := range [][]time.Duration{nil, {5}, {time.Millisecond}, durations()} {
		h := histogramOf(ds)
		ours := newHistogram(desc("x", "x", nil), &h)
		var got, want dto.Metric
		must(t, ours.Write(&got))
		var bounds []float64
		for exp := hist.MinExp; exp <= slowestExp; exp++ {
			bounds = append(bounds, math.Pow(2, float64(exp)))
		}
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "edge_x", Help: "x", Buckets: bounds, NativeHistogramBucketFactor: 1.19,
			NativeHistogramZeroThreshold: bounds[0],
		})
		for _, d := range ds {
			theirs.Observe(d.Seconds())
		}
		must(t, theirs.Write(&want))
		g, w := got.Histogram, want.Histogram
		if g.GetSampleCount() != w.GetSampleCount() || g.GetZeroCount() != w.GetZeroCount() ||
			!closeTo(g.GetSampleSum(), w.GetSampleSum()) {
			t.Errorf("%d durations: %v, want %v", len(ds), g, w)
		}
		if g.GetSchema() != w.GetSchema() || g.GetZeroThreshold() != w.GetZeroThreshold() || !maps.Equal(natives(g),
			natives(w)) {
			t.Errorf("%d durations, native: %v, want %v", len(ds), g, w)
		}
		if !maps.Equal(classics(g), classics(w)) {
			t.Errorf("%d durations, classic: %v, want %v", len(ds), g, w)
		}
	}
}

// scrape asks for metrics as Prometheus does, and takes the answer apart.
func scrape(t *testing.T, src Source, format expfmt.Format) map[string]*dto.MetricFamily {
	t.Helper()
	req, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
	req.Header.Set("Accept", string(format))
	Handler(src, "1").ServeHTTP(w, req)
	got := expfmt.ResponseFormat(w.Header())
	if got.FormatType() != format.FormatType() {
		t.Fatalf("asked for %s, got %s", format, got)
	}
	families, dec := map[string]*dto.MetricFamily{}, expfmt.NewDecoder(w.Body, got)
	for {
		f := new(dto.MetricFamily)
		switch err := dec.Decode(f); {
		case errors.Is(err, io.EOF):
			return families
		case err != nil:
			t.Fatal(err)
		}
		families[f.GetName()] = f
	}
}

// find is the histogram whose label has that value.
func find(t *testing.T, families map[string]*dto.MetricFamily, name, label, value string) *dto.Histogram {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
			return l.GetName() == label &&
				l.GetValue() == value
		}) && m.Histogram != nil {
			return m.Histogram
		}
	}
	t.Fatalf("no histogram %s with %s %s", name, label, value)
	return nil
}

// The text says the same as the protobuf, and there the classic buckets are sums of the native ones.
func TestHistogramExposition(t *testing.T) {
	src, ds := sample(), durations()
	src.snap.Latency.Write = histogramOf(ds)
	src.snap.Links[0].RoundTrips = histogramOf(ds[:100])
	text, proto := scrape(t, src, expfmt.NewFormat(expfmt.TypeTextPlain)),
		scrape(t, src, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, c := range []struct {
		name, label, value string
		h                  *hist.Histogram
	}{
		{"edge_operation_seconds", "kind", "write", &src.snap.Latency.Write}, {"edge_operation_seconds", "kind", "read",
			new(hist.Histogram)},
		{"edge_link_round_trip_seconds", "link", "eth1", &src.snap.Links[0].RoundTrips},
	} {
		p, x := find(t, proto, c.name, c.label, c.value), find(t, text, c.name, c.label, c.value)
		for _, h := range []*dto.Histogram{p, x} {
			if h.GetSampleCount() != c.h.Count() || !closeTo(h.GetSampleSum(), float64(c.h.Sum)/1e9) {
				t.Errorf("%s %s: count %d, sum %v, want %d and %v", c.name, c.value, h.GetSampleCount(),
					h.GetSampleSum(), c.h.Count(), float64(c.h.Sum)/1e9)
			}
		}
		if last := x.Bucket[len(x.Bucket)-1]; !math.IsInf(last.GetUpperBound(), 1) ||
			last.GetCumulativeCount() != c.h.Count() {
			t.Errorf("%s %s: the last bucket is %v", c.name, c.value, last)
		}
		if len(classics(p)) != slowestExp-hist.MinExp+1 || !maps.Equal(classics(x), classics(p)) {
			t.Errorf("%s %s: text %v, protobuf %v", c.name, c.value, x, p)
		}
		if p.Schema == nil || p.GetSchema() != hist.Schema || p.GetZeroThreshold() <= 0 {
			t.Errorf("%s %s is not native: %v", c.name, c.value, p)
		}
		sum := p.GetZeroCount()
		for _, n := range natives(p) {
			sum += uint64(n)
		}
		if sum != c.h.Count() {
			t.Errorf("%s %s: native buckets have %d, want %d", c.name, c.value, sum, c.h.Count())
		}
		for bound, n := range classics(p) {
			sum := p.GetZeroCount()
			for i, k := range natives(p) {
				if math.Pow(2, float64(i)/hist.PerOctave) <= bound {
					sum += uint64(k)
				}
			}
			if n != sum {
				t.Errorf("%s %s: %d up to %v, native buckets have %d", c.name, c.value, n, bound, sum)
			}
		}
	}
}
