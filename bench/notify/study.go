package notify

import (
	"fmt"

	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// What the paper has, in microseconds (§5.3, figure 9; §5.1).
var (
	linux = [4]float64{10, 17, 3, 30}
	nt    = [4]float64{28, 16, 7, 52} // 28: 10 to the interrupt handler, 18 to the deferred call

	paperExport, paperImport = 43.0, 68.0 // on NT, of one page, of which the system 18.3 and 0
)

// Study shows a result beside what the paper says.
func (r *Result) Study(head report.Head) *xlate.Study {
	s := &xlate.Study{Head: head, Title: "Notifications", Scale: 1, Seed: 1,
		Origin: "Measured on this machine, between two hosts of a lab.",
		Paper: "Chen, Damianakis, Kumar, Yu and Li, Porting a User-Level Communication Architecture to NT: " +
			"Experiences and Performance (1999), §5.1, §5.3, figure 9"}
	s.Tables = []xlate.Table{r.notifications(), r.efforts(), r.exports()}
	for i := range r.Runs {
		b := &r.Runs[i]
		mine, paper := b.Schedule.P50/b.Overhead.P50, linux[1]/linux[3]
		s.AddTrend(b.Wait, "§5.3", "Of the receiver's overhead, getting the handler to run is the largest part on "+
			"Linux.", b.Schedule.P50 > max(b.Arrival.P50, b.Return.P50), "a receiver that polls needs no scheduling, "+
			"and other programs delay the interrupted thread", "%s: %.0f %% of the whole, of VMMC on Linux %.0f %%",
			b.Wait, 100*mine, 100*paper)
	}
	return s
}

func (r *Result) notifications() xlate.Table {
	t := xlate.Table{ID: "notify", Columns: []string{"step"},
		Title: fmt.Sprintf("Receiver's overhead of a notification of %d bytes, us: medians (and 99th percentiles)",
			r.Bytes),
		Caption: "Arrival: from the call that sends the frame until the daemon has it; VMMC's is the interrupt. " +
			"Return: until the thread runs that was interrupted. All: without the handler. The traces of both " +
			"daemons that the times come from slow them down a little."}
	for i := range r.Runs {
		t.Columns = append(t.Columns, r.Runs[i].Wait, "(p99)")
	}
	t.Columns = append(t.Columns, "VMMC, Linux", "VMMC, NT")
	for _, step := range []struct {
		name  string
		of    func(*Breakdown) *report.Latency
		paper int // of linux and nt; -1: not told
	}{
		{"post to departure", func(b *Breakdown) *report.Latency { return &b.Post }, -1},
		{"arrival to daemon", func(b *Breakdown) *report.Latency { return &b.Arrival }, 0},
		{"scheduling", func(b *Breakdown) *report.Latency { return &b.Schedule }, 1},
		{"handler", func(b *Breakdown) *report.Latency { return &b.Handler }, -1},
		{"return", func(b *Breakdown) *report.Latency { return &b.Return }, 2},
		{"all", func(b *Breakdown) *report.Latency { return &b.Overhead }, 3},
	} {
		row := xlate.Row{Label: step.name}
		for i := range r.Runs {
			l := step.of(&r.Runs[i])
			row.Cells = append(row.Cells, xlate.Cells("%.1f", l.P50/1000, l.P99/1000)...)
		}
		if step.paper >= 0 {
			row.Cells = append(row.Cells, paper(linux[step.paper]), paper(nt[step.paper]))
		} else {
			row.Cells = append(row.Cells, xlate.Text("-"), xlate.Text("-"))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// efforts is what a notification costs both hosts in the kernel, in counts.
func (r *Result) efforts() xlate.Table {
	t := xlate.Table{ID: "effort", Columns: []string{"process"},
		Title: "System calls, switches of threads, and calls that wake another, for each notification",
		Caption: "With the pause before it, in which the receiver rests. The daemons' calls include those of the " +
			"traces; the server's switches include those of the interrupted thread."}
	for i := range r.Runs {
		for _, count := range []string{"calls", "switches", "wake-ups"} {
			t.Columns = append(t.Columns, r.Runs[i].Wait+": "+count)
		}
	}
	for _, end := range []struct {
		name string
		of   func(*report.Efforts) report.Effort
	}{
		{"client", func(e *report.Efforts) report.Effort { return e.ClientProcess }},
		{"its daemon", func(e *report.Efforts) report.Effort { return e.ClientDaemon }},
		{"server's daemon", func(e *report.Efforts) report.Effort { return e.ServerDaemon }},
		{"server", func(e *report.Efforts) report.Effort { return e.ServerProcess }},
		{"all", (*report.Efforts).Total},
	} {
		row := xlate.Row{Label: end.name}
		for i := range r.Runs {
			e := end.of(&r.Runs[i].Efforts)
			for _, n := range []uint64{e.SystemCalls, e.Voluntary + e.Involuntary, e.WakeUps} {
				row.Cells = append(row.Cells, xlate.Number(float64(n)/float64(max(r.Rounds, 1)), "%.2f"))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r *Result) exports() xlate.Table {
	t := xlate.Table{ID: "setup", Columns: []string{"call", "here", "(p99)", "VMMC, NT"},
		Title:   "What exporting and importing a page costs, us: medians (and 99th percentiles)",
		Caption: "VMMC's export pins the page, which Register does here; its import has no connection to make."}
	both := func(l report.Latency) report.Latency {
		l.P50, l.P99 = l.P50+r.Setup.Register.P50, l.P99+r.Setup.Register.P99
		return l
	}
	for _, c := range []struct {
		name  string
		l     report.Latency
		paper float64
	}{
		{"Register", r.Setup.Register, 0}, {"Export", r.Setup.Export, 0},
		{"Register and Export", both(r.Setup.Export), paperExport}, {"Import", r.Setup.Import, paperImport},
		{"Import, same host", r.Setup.ImportHere, 0},
		{"Unexport", r.Setup.Unexport, 0},
	} {
		cells, theirs := xlate.Cells("%.1f", c.l.P50/1000, c.l.P99/1000), xlate.Text("-")
		if c.paper > 0 {
			cells[0].Paper, theirs = &c.paper, paper(c.paper)
		}
		t.Add(c.name, append(cells, theirs)...)
	}
	return t
}

func paper(us float64) xlate.Cell { return xlate.Text(fmt.Sprint(us)) }
