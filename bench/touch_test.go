package bench

import (
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/internal/config"
)

// Memory is touched before the clock starts: a round of two-way over streams that uses all of it, with nothing before
// it, has far fewer page faults than it has pages; one of writes, too.
func TestMemoryIsTouchedBeforeTheClock(t *testing.T) {
	const region = 64 << 20
	c := cluster(t, ClusterSpec{Security: config.Plaintext, Pin: true})
	for _, spec := range []workload.Spec{
		{Test: report.TwoWay, Size: 1 << 20, Count: region >> 20, Depth: 4, Batch: 1, Region: region},
		{Test: report.TwoWay, Size: 1 << 20, Duration: 400 * time.Millisecond, Depth: 1, Batch: 1, ByteStream: true,
			Region: region},
	} {
		var row *report.Row
		for row == nil || row.Bytes/2 < region && spec.Duration < 10*time.Second {
			job := &Job{Region: region, Peer: c.lab.Host(1).Name(), Specs: []workload.Spec{spec}}
			must(t, c.series(t.Context(), job, Series{Specs: job.Specs, Region: region, Sink: func(e Event) {
				if e.Row != nil {
					row = e.Row
				}
			}}))
			spec.Duration *= 2 // a slow machine uses all of it in more time
		}
		pages := min(uint64(region), row.Bytes/2) / 4096
		if row.PageFaults > pages/2 {
			t.Errorf("streams %v: %d page faults, each end used %d pages twice", spec.ByteStream, row.PageFaults, pages)
		}
		t.Logf("%d page faults, %d pages", row.PageFaults, pages)
	}
}

// The first touch has a row of its own, and only that row has page faults.
func TestFirstTouchIsARow(t *testing.T) {
	rows, err := kit.Outcome(func() []*report.Row { return FirstTouch(32 << 20) })
	must(t, err)
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	first, again := rows[0], rows[1]
	for _, r := range rows {
		if r.Test != report.FirstTouch || r.Transport != report.TransportMemory || r.RegionBytes != 32<<20 ||
			r.Throughput <= 0 || r.Bytes != 32<<20 {
			t.Errorf("%+v", r)
		}
	}
	if first.Variant == again.Variant || first.PageFaults < 16 ||
		again.PageFaults > first.PageFaults/10 {
		t.Errorf("first %+v, again %+v", first, again)
	}
}
