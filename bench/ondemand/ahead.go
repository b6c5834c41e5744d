package ondemand

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/edge"
)

// Foresight is what writes came to with one setting of prefetch, by what they use.
type Foresight struct {
	Setting    string         `json:"prefetch"`
	Bytes      int            `json:"bytes"`
	Pattern    string         `json:"pattern"`
	Rates      []float64      `json:"bytes_per_second"` // one at a time, by round
	Whole      []float64      `json:"registered_bytes_per_second"`
	Latency    report.Latency `json:"latency_ns"` // of the last round
	Missed     float64        `json:"missed"`     // share of uses
	Prefetched uint64         `json:"prefetched"` // chunks
	Wasted     uint64         `json:"wasted"`     // of them
}

// foresee measures writes, one at a time, to memory of which twice the budget is used in turn, pages there, in turns
// with memory that is registered whole.
func (r *run) foresee(ctx context.Context) {
	setting := cmp.Or(r.Ahead, "exact")
	all := []Foresight{{Bytes: 1 << 20, Pattern: xlate.Cyclic}, {Bytes: 1 << 20, Pattern: xlate.Permuted},
		{Bytes: chunk, Pattern: xlate.Cyclic}, {Bytes: chunk, Pattern: xlate.Permuted}}
	r.turns(len(all), func(i int) string {
		return fmt.Sprintf("prefetch %s: writes of %d bytes, %s", setting, all[i].Bytes, all[i].Pattern)
	}, func(i, round int) {
		all[i].Setting = setting
		r.foreseen(ctx, &all[i], true, uint64(round))
		r.foreseen(ctx, &all[i], false, uint64(round))
	})
	r.res.Foresights = append(r.res.Foresights, all...)
}

// foreseen measures a round of one.
func (r *run) foreseen(ctx context.Context, p *Foresight, whole bool, seed uint64) {
	t := r.space(2 * r.Budget)
	t.Whole = whole
	f := r.open(ctx, r.d, t)
	defer f.c.Close()
	l := load{far: f, kind: edge.Write, near: r.near, bytes: p.Bytes, flying: 1, span: time.Minute,
		most: 2 * r.Budget / p.Bytes}
	l.at = pattern(p.Pattern, l.most, seed)
	l.run(ctx, nil) // all of it was pinned once
	l.span, l.most = r.span(), 0
	before := f.order(ctx, tellUsage)
	o := l.run(ctx, nil)
	after := f.order(ctx, tellUsage)
	if whole {
		p.Whole = append(p.Whole, o.rate(p.Bytes))
		return
	}
	p.Rates, p.Latency = append(p.Rates, o.rate(p.Bytes)), o.latency
	p.Missed += missed(before, after) / float64(r.Rounds)
	p.Prefetched += after.Prefetched - before.Prefetched
	p.Wasted += after.Wasted - before.Wasted
}

func (r *Result) foresightStudy(s *xlate.Study) {
	t := xlate.Table{ID: "prefetch", Title: "Writes one at a time, by what is pinned before it is used",
		Caption: fmt.Sprintf("Twice the budget in use, pages there, %d rounds in turns with registered memory. exact: "+
			"what operations say will follow, and what sequential does; sequential: what follows two neighbours that "+
			"missed (prefetch in edged.toml). Missed: uses that did.", r.Rounds),
		Columns: []string{"prefetch, bytes, pattern", "MB/s", "of registered", "p50, us", "missed", "prefetched",
			"wasted"}}
	for _, p := range r.Foresights {
		t.Add(fmt.Sprintf("%s, %d, %s", p.Setting, p.Bytes, p.Pattern), xlate.Cells("%.0f %.2f %.0f %.2f %.0f",
			report.Median(p.Rates)/1e6, ratio(p.Rates, p.Whole), p.Latency.P50/1000, p.Missed, float64(p.Prefetched),
			float64(p.Wasted))...)
	}
	s.Tables = append(s.Tables, t)
}
