package splash

import (
	"fmt"
	"runtime"
	"time"

	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/edge/dsm"
)

// parts of a rank's time, from what the program does itself to waiting for others.
var parts = []struct {
	name string
	of   func(s *dsm.Stats) time.Duration
}{
	{"compute", func(s *dsm.Stats) time.Duration {
		return s.Total - s.Data - s.Flush - s.Acquire - s.Lock - s.Barrier
	}},
	{"data", func(s *dsm.Stats) time.Duration { return s.Data }},
	{"flush", func(s *dsm.Stats) time.Duration { return s.Flush }},
	{"acquire", func(s *dsm.Stats) time.Duration { return s.Acquire }},
	{"lock", func(s *dsm.Stats) time.Duration { return s.Lock }},
	{"barrier", func(s *dsm.Stats) time.Duration { return s.Barrier }},
}

// counts of all ranks together.
var counts = []struct {
	name string
	of   func(s *dsm.Stats) int
}{
	{"operations", func(s *dsm.Stats) int { return s.Operations }},
	{"fetches", func(s *dsm.Stats) int { return s.Fetches }},
	{"pages", func(s *dsm.Stats) int { return s.Pages }}, {"twins", func(s *dsm.Stats) int { return s.Twins }},
	{"diffs", func(s *dsm.Stats) int { return s.Diffs }}, {"runs", func(s *dsm.Stats) int { return s.Runs }},
	{"KiB", func(s *dsm.Stats) int { return s.Bytes >> 10 }}, {"notices", func(s *dsm.Stats) int { return s.Notices }},
	{"made stale", func(s *dsm.Stats) int { return s.Stale }}, {"locks", func(s *dsm.Stats) int { return s.Locks }},
	{"waited", func(s *dsm.Stats) int { return s.Waits }}, {"barriers", func(s *dsm.Stats) int { return s.Barriers }},
}

// Study shows a result.
func (r *Result) Study(head report.Head) *xlate.Study {
	s := &xlate.Study{Head: head, Title: "Parallel programs on shared memory over edge", Scale: 1, Seed: 1,
		Origin: "Measured on this machine.",
		Paper:  "no figure of a paper: programs of the kinds that the UTLB, DHL and VMMC papers ran (SPLASH-2)"}
	s.Tables = append(s.Tables, r.runs(), r.times(), r.counted())
	wrong := []string{}
	for i := range r.Rows {
		if !r.Rows[i].Same {
			wrong = append(wrong, r.Rows[i].Kernel)
		}
	}
	if r.Self > 1 {
		return s // rank 0 compares the results
	}
	s.AddGoal("bits", "Every result is, bit for bit, that of the sequential run.", len(wrong) == 0,
		"the protocol or a kernel is wrong", "%d kernels, of which these differ: %v; links were cut %d times",
		len(r.Rows), wrong, r.Cuts)
	r.steps(s)
	if len(r.Kills) > 0 {
		last := 0.0
		for _, k := range r.Kills {
			last = max(last, k.After)
		}
		s.AddGoal("kill", "When a rank is killed, all others end within a second, with an error that names it.",
			last <= 1, "a busy machine takes longer", "%.3f s until the last of %d; rank %d: %s", last, len(r.Kills),
			r.Kills[0].Rank, r.Kills[0].Error)
	}
	s.Figures = []figure.Figure{r.figure()}
	return s
}

// whose says of which ranks a table is, if it is of all.
func (r *Result) whose(all string) string {
	if r.Self > 0 {
		return fmt.Sprintf("rank %d", r.Self-1)
	}
	return all
}

// languages says which ranks are in C.
func (r *Result) languages() string {
	if r.Program == "" {
		return ""
	}
	return ", from rank 1 on every other one in C"
}

// longest is the time of the rank that took longest.
func (r *Row) longest() (d time.Duration) {
	for i := range r.Stats {
		d = max(d, r.Stats[i].Total)
	}
	return d
}

func (r *Result) runs() xlate.Table {
	t := xlate.Table{ID: "splash", Title: fmt.Sprintf("Kernels on %d ranks, one on each host%s", r.Ranks,
		r.languages()),
		Columns: []string{"kernel", "size", "one rank, ms", "all, ms", "speed-up", "bits"},
		Caption: "The time of a run is that of its longest rank, without setting up."}
	if r.Ranks > runtime.NumCPU() {
		t.Caption += " There is no speed-up, since ranks share processors."
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		all := row.longest().Seconds()
		speedup, bits := xlate.Text("-"), "same"
		if r.Ranks <= runtime.NumCPU() && row.Alone > 0 {
			speedup = xlate.Number(row.Alone/all, "%.2f")
		}
		if !row.Same {
			bits = "DIFFERENT"
		}
		if r.Self > 1 {
			bits = "-" // rank 0 compares them
		}
		cells := append(xlate.Cells("%.0f %.1f", float64(row.Size), row.Alone*1000, all*1000), speedup,
			xlate.Text(bits))
		t.Add(row.Kernel, cells...)
	}
	return t
}

func (r *Result) times() xlate.Table {
	t := xlate.Table{ID: "splash-time", Title: "Where the time goes, ms, " + r.whose("mean of the ranks"),
		Columns: []string{"kernel"},
		Caption: "data: waiting for pages; flush: comparing and carrying changes home; acquire: reading what others " +
			"changed; lock, barrier: waiting in them; compute: the rest."}
	for _, p := range parts {
		t.Columns = append(t.Columns, p.name)
	}
	for i := range r.Rows {
		t.Add(r.Rows[i].Kernel, xlate.Cells("%.1f", r.Rows[i].means()...)...)
	}
	return t
}

// means are the parts of the time, in milliseconds.
func (r *Row) means() (list []float64) {
	for _, p := range parts {
		sum := 0.0
		for i := range r.Stats {
			sum += p.of(&r.Stats[i]).Seconds() * 1000
		}
		list = append(list, sum/float64(len(r.Stats)))
	}
	return list
}

func (r *Result) counted() xlate.Table {
	t := xlate.Table{ID: "splash-counts", Title: "What was done, " + r.whose("all ranks together"),
		Columns: []string{"kernel"},
		Caption: "operations: on memory of other ranks; runs: writes of changed bytes, of so many KiB; waited: " +
			"for a lock that another rank had."}
	for _, c := range counts {
		t.Columns = append(t.Columns, c.name)
	}
	for i := range r.Rows {
		var list []float64
		for _, c := range counts {
			sum := 0
			for k := range r.Rows[i].Stats {
				sum += c.of(&r.Rows[i].Stats[k])
			}
			list = append(list, float64(sum))
		}
		t.Add(r.Rows[i].Kernel, xlate.Cells("%.0f", list...)...)
	}
	return t
}

// steps shows what single steps cost.
func (r *Result) steps(s *xlate.Study) {
	if len(r.Steps) == 0 {
		return
	}
	t := xlate.Table{ID: "splash-steps", Title: "Steps of shared memory beside operations of package edge, us, medians",
		Columns: []string{"step", "us", "beside", "us", "ratio", "goal"},
		Caption: "Measured in turn in one run, from rank 1 to rank 0."}
	for _, x := range r.Steps {
		goal := xlate.Text("-")
		if x.Goal > 0 {
			goal = xlate.Number(x.Goal, "%.2f")
			s.AddGoal(x.What, fmt.Sprintf("A %s takes at most %.2f times as long as a %s.", x.What, x.Goal, x.Beside),
				x.Time <= x.Goal*x.Base, "it waits more often in turn; on a busy machine each wait is longer",
				"%.1f us, %.1f us: %.2f times%s", x.Time, x.Base, x.Time/x.Base, x.Note)
		}
		t.Add(x.What, xlate.Number(x.Time, "%.1f"), xlate.Text(x.Beside), xlate.Number(x.Base, "%.1f"),
			xlate.Number(x.Time/x.Base, "%.2f"), goal)
	}
	s.Tables = append(s.Tables, t)
}

func (r *Result) figure() figure.Figure {
	f := figure.Figure{ID: "splash", Title: "Where the time of a kernel goes",
		Caption: fmt.Sprintf("Mean of %d ranks, each on a host of its own.", r.Ranks)}
	p := figure.Panel{XLabel: "kernel", YLabel: "% of the time"}
	for i, part := range parts {
		f.Legend = append(f.Legend, figure.Entry{Text: part.name, Style: i})
	}
	for i := range r.Rows {
		p.Names = append(p.Names, r.Rows[i].Kernel)
		list, all, b := r.Rows[i].means(), 0.0, figure.Bar{}
		for _, v := range list {
			all += v
		}
		for k, v := range list {
			b.Parts = append(b.Parts, figure.Part{Value: 100 * v / all, Color: k})
		}
		p.Bars = append(p.Bars, []figure.Bar{b})
	}
	f.Panels = []figure.Panel{p}
	return f
}
