package handles

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/scale"
	"multiedge/edge"
	"multiedge/edge/catalog"
)

const (
	rounds = 5
	atOnce = 16
)

// run is a client at work.
type run struct {
	Spec
	d     *edge.Device
	probe *scale.Probe
	show  func(what string, share float64)
	first map[string][2]scale.Host // by way: client and server at the first step
	base  map[string]int           // and its exports
}

// Run carries a Spec out. It calls show now and then with what is being done and how far that is.
func Run(ctx context.Context, d *edge.Device, s Spec, show func(string, float64)) *Result {
	probe := scale.NewProbe(ctx, d, s.Peer)
	defer probe.Close()
	r := &run{Spec: s, d: d, probe: probe, show: show, first: map[string][2]scale.Host{}, base: map[string]int{}}
	res := &Result{Spec: s}
	for _, way := range s.Ways {
		have := r.granted
		if way == Catalog {
			have = r.catalog
		}
		for _, n := range s.Exports {
			kit.Doing(func() { res.Steps = append(res.Steps, *r.step(ctx, way, n, have)) }, "%s, %d exports", way, n)
		}
	}
	return res
}

// step makes n exports, measures with them, and gives them up.
func (r *run) step(ctx context.Context, way string, n int,
	have func(context.Context, int) ([]*edge.RemoteRegion, func())) *Step {
	start := time.Now()
	used, end := have(ctx, n)
	defer end()
	s := &Step{Way: way, Exports: n, Setup: time.Since(start).Seconds()}
	r.memory(ctx, s)
	r.write(ctx, s, used)
	return s
}

// memory reads what the processes hold, and divides the growth since the first step by the exports added since.
func (r *run) memory(ctx context.Context, s *Step) {
	client, server := r.probe.Hosts(ctx)
	first, known := r.first[s.Way]
	if !known {
		r.first[s.Way], r.base[s.Way] = [2]scale.Host{client, server}, s.Exports
		return
	}
	each := func(now, then scale.Usage) float64 {
		return (float64(now.Resident) - float64(then.Resident)) / float64(s.Exports-r.base[s.Way])
	}
	s.Bytes, s.Exporter = each(server.Daemon, first[1].Daemon), each(server.Application, first[1].Application)
	s.ImpDaemon, s.Importer = each(client.Daemon, first[0].Daemon), each(client.Application, first[0].Application)
}

// granted has n objects exported on connections, and imports those that are used.
func (r *run) granted(ctx context.Context, n int) (used []*edge.RemoteRegion, end func()) {
	var conns []*edge.Conn
	end = func() {
		for _, c := range conns {
			c.Close()
		}
	}
	apart := max(1, n/r.InUse)
	for from := 0; from < n; from += perConn {
		r.show(fmt.Sprintf("granted: %d exports", n), float64(from)/float64(n))
		count := min(perConn, n-from)
		c := kit.Get(r.d.Dial(ctx, r.Peer, service, edge.Data(fmt.Appendf(nil, "%d %d", from, count))))
		conns = append(conns, c)
		kit.Get(c.Import(ctx, "end"))
		for i := from; i < from+count; i++ {
			if i%apart != 0 || len(used) == r.InUse {
				continue
			}
			used = append(used, kit.Get(c.Import(ctx, name(i))))
		}
	}
	return used, end
}

// catalog imports what is used of n names.
func (r *run) catalog(ctx context.Context, n int) (used []*edge.RemoteRegion, end func()) {
	m := kit.Get(catalog.Open(ctx, r.d, r.Peer, service, r.InUse))
	for i := range r.InUse {
		if i%64 == 0 {
			r.show(fmt.Sprintf("catalog: %d exports", n), float64(i)/float64(r.InUse))
		}
		mem, err := m.Import(ctx, fmt.Sprintf("object %d of %d", i*(n/r.InUse), n))
		if err != nil {
			m.Close()
			kit.Check(err)
		}
		used = append(used, mem)
	}
	return used, func() { m.Close() }
}

// write writes to the exports in use, in random order, one after the other and many at once.
func (r *run) write(ctx context.Context, s *Step, used []*edge.RemoteRegion) {
	var p50, p99, rate []float64
	random := rand.New(rand.NewPCG(1, uint64(s.Exports)))
	data := make([]byte, 16)
	for round := range rounds {
		r.show(fmt.Sprintf("%s: %d exports, writes", s.Way, s.Exports), float64(round)/rounds)
		times := report.NewRecorder()
		for range r.Writes {
			to, start := used[random.IntN(len(used))], time.Now()
			kit.Do(ctx, to.Conn(), &edge.Work{Kind: edge.Write, Inline: data, Remote: to})
			times.Record(time.Since(start))
		}
		sum := times.Summary(1)
		p50, p99 = append(p50, sum.P50), append(p99, sum.P99)
		var flying [atOnce]edge.Op
		start := time.Now()
		for i := range 2 * r.Writes {
			at := &flying[i%atOnce]
			kit.Check(at.Wait(ctx))
			to := used[random.IntN(len(used))]
			op := kit.Get(to.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: data, Remote: to}))
			*at = op
		}
		for i := range flying {
			kit.Check(flying[i].Wait(ctx))
		}
		rate = append(rate, float64(2*r.Writes)/time.Since(start).Seconds())
	}
	s.P50, s.P99, s.Rate = report.Median(p50), report.Median(p99), report.Median(rate)
}
