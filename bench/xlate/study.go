package xlate

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"multiedge/bench/figure"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate/svm"
	"multiedge/bench/xlate/trace"
)

// Options choose what of a study is done.
type Options struct {
	Only  *regexp.Regexp // parts whose name matches; nil: all
	Apps  []Program
	Scale float64 // 1: the papers' problem sizes
	Seed  uint64  // of what is drawn at random; it changes no trace of a program
	// in place of programs: a trace that was recorded, and its name; nil: none
	Trace *trace.Trace
	Name  string
	Begin func(steps int)   // how many steps there will be
	Step  func(what string) // before each
}

// Program is a parallel program whose lookups are studied.
type Program struct {
	Name string
	// Trace runs it on a cluster. problem says what it computed.
	Trace func(ctx context.Context, cluster svm.Config, scale float64) (r *svm.Result, problem string, err error)
}

// Study is what a study found.
type Study struct {
	report.Head
	Title   string          `json:"title"`
	Paper   string          `json:"paper"`
	Origin  string          `json:"origin"` // where numbers come from: measured here, simulated, computed; a sentence
	Scale   float64         `json:"scale"`
	Seed    uint64          `json:"seed"`
	Tables  []Table         `json:"tables"`
	Trends  []Trend         `json:"trends"`
	Runs    []Run           `json:"runs"` // everything that was simulated
	Figures []figure.Figure `json:"-"`
}

// Table is a table of a paper, ours beside theirs.
type Table struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Caption string   `json:"caption"`
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// Row is a row of a table. Columns[0] is over its label.
type Row struct {
	Label string `json:"label"`
	Cells []Cell `json:"cells"`
}

// Cell holds our number and the paper's; text alone where there is no number.
type Cell struct {
	Text  string   `json:"text,omitempty"`
	Ours  *float64 `json:"ours,omitempty"`
	Paper *float64 `json:"paper,omitempty"`
	Form  string   `json:"-"` // of the numbers; "" is %.2f
}

// Show formats one of the numbers of c.
func (c Cell) Show(v *float64) string {
	if v == nil {
		return ""
	}
	if c.Form == "" {
		return fmt.Sprintf("%.2f", *v)
	}
	return fmt.Sprintf(c.Form, *v)
}

// Trend is something that the paper saw, and whether it is so here; or a goal of this project, and whether it is
// reached.
type Trend struct {
	ID     string `json:"id"`
	Claim  string `json:"claim"`
	Where  string `json:"where"`
	Found  string `json:"found"`
	Agrees bool   `json:"agrees"`
	Why    string `json:"why,omitempty"`  // it does not
	Goal   bool   `json:"goal,omitempty"` // Claim is a goal of this project, of no paper
}

// Verdict says in a word how it stands.
func (t *Trend) Verdict() string {
	switch {
	case t.Goal && t.Agrees:
		return "reached"
	case t.Goal:
		return "MISSED"
	case t.Agrees:
		return "agrees"
	}
	return "DIFFERS"
}

// Run is one simulation.
type Run struct {
	App    string `json:"app"`
	Config any    `json:"config"`
	Counts any    `json:"counts"`
}

// app is a kernel with its trace.
type app struct {
	name, problem string
	lookups       *Lookups
	footprint     int
	shared        int // pages of shared memory
	time, work    uint64
}

// part is a table or figure of a study. It is called once for each app, and ends by kit.Check.
type part struct {
	name    string
	each    func(r *runner, a *app)
	kernels bool // it takes a kernel's model of time and memory
}

// runner carries out a study.
type runner struct {
	o    Options
	out  *Study
	apps []*app
	done map[string]any // counts of what was simulated
}

// study returns what a study finds: do fills it, and may end by kit.Check.
func (o Options) study(s *Study, do func(r *runner)) (*Study, error) {
	s.Scale, s.Seed = o.Scale, o.Seed
	err := kit.Try(func() { do(&runner{o: o, out: s, done: map[string]any{}}) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// run generates the traces and does the parts that are asked for.
func (r *runner) run(ctx context.Context, shape svm.Config, all bool, parts []part) {
	apps := r.o.Apps
	if r.o.Trace != nil {
		apps = []Program{{Name: r.o.Name}}
	}
	parts = slices.DeleteFunc(slices.Clone(parts), func(p part) bool {
		return !r.wanted(p.name) || p.kernels && r.o.Trace != nil
	})
	if len(parts) == 0 {
		kit.Fail("--only %q matches no part of this study", r.o.Only)
	}
	r.o.Begin(len(apps) * (1 + len(parts)))
	for _, program := range apps {
		name := program.Name
		r.o.Step("trace of " + name)
		var a *app
		kit.Doing(func() { a = r.app(ctx, &program, shape, all) }, "%s", name)
		r.apps = append(r.apps, a)
		for _, p := range parts {
			r.o.Step(name + ": " + p.name)
			kit.Check(ctx.Err())
			kit.Doing(func() { p.each(r, a) }, "%s of %s", p.name, name)
		}
	}
}

// app makes the trace of a program, or takes what was recorded.
func (r *runner) app(ctx context.Context, program *Program, shape svm.Config, all bool) *app {
	a, t := &app{name: program.Name, problem: "recorded"}, r.o.Trace
	if t == nil {
		res, problem, err := program.Trace(ctx, shape, r.o.Scale)
		kit.Check(err)
		a, t = &app{name: program.Name, problem: problem, time: res.Time, work: res.Work, shared: res.Pages}, res.Trace
	}
	a.lookups = kit.Get(NewLookups(t, all))
	if _, a.footprint = a.lookups.Count(); a.footprint == 0 {
		kit.Fail("there is no lookup in it that this study is about")
	}
	return a
}

func (r *runner) wanted(name string) bool { return r.o.Only == nil || r.o.Only.MatchString(name) }

// simulated returns the counts of a configuration, which is simulated once.
func simulated[C any, N any](r *runner, a *app, cfg C, simulate func(*Lookups, C) (*N, error)) *N {
	key := fmt.Sprintf("%s %+v", a.name, cfg)
	if n, ok := r.done[key].(*N); ok {
		return n
	}
	n := kit.Get(simulate(a.lookups, cfg))
	r.done[key] = n
	r.out.Runs = append(r.out.Runs, Run{App: a.name, Config: cfg, Counts: n})
	return n
}

func (r *runner) simulate(a *app, cfg Config) *Counts {
	cfg.Seed = r.o.Seed
	return simulated(r, a, cfg, Simulate)
}

func (r *runner) simulateDHL(a *app, cfg DHLConfig) *DHLCounts {
	return simulated(r, a, cfg, SimulateDHL)
}

// table returns the table of the study with an id, made if need be.
func (r *runner) table(id, title, caption string, columns ...string) *Table {
	if r.existing(id) == nil {
		r.out.Tables = append(r.out.Tables, Table{ID: id, Title: title, Caption: caption, Columns: columns})
	}
	return r.existing(id)
}

// Add adds a row.
func (t *Table) Add(label string, cells ...Cell) { t.Rows = append(t.Rows, Row{label, cells}) }

// find returns our value in a row and column; false if there is none.
func (t *Table) find(label, column string) (float64, bool) {
	if c := t.cell(label, column); c.Ours != nil {
		return *c.Ours, true
	}
	return 0, false
}

// cell returns the cell in a row and column; an empty one if there is none.
func (t *Table) cell(label, column string) (cell Cell) {
	c := slices.Index(t.Columns, column) - 1
	for _, row := range t.Rows {
		if row.Label == label && c >= 0 && c < len(row.Cells) {
			return row.Cells[c]
		}
	}
	return cell
}

// Text is a cell without a number.
func Text(s string) Cell { return Cell{Text: s} }

func ours(v float64) Cell { return Cell{Ours: &v} }

// Number is a cell with a number of ours, in a form such as %.1f.
func Number(v float64, form string) Cell { return Cell{Ours: &v, Form: form} }

// Cells are cells with numbers of ours. Their forms, such as "%.1f %.0f", stand apart by spaces; the last is that of
// all further numbers, too.
func Cells(forms string, values ...float64) (cells []Cell) {
	list := strings.Fields(forms)
	for i, v := range values {
		cells = append(cells, Number(v, list[min(i, len(list)-1)]))
	}
	return cells
}

// Beside is a cell with a number of ours and the paper's, in a form such as %.1f.
func Beside(v, paper float64, form string) Cell { return beside(v, paper).as(form) }

func beside(v, paper float64) Cell { return Cell{Ours: &v, Paper: &paper} }

func (c Cell) as(form string) Cell { c.Form = form; return c }

// short writes a number of entries as the paper does: 8K.
func short(n int) string { return fmt.Sprintf("%dK", n>>10) }

// AddTrend adds a trend; why explains a disagreement.
func (s *Study) AddTrend(id, where, claim string, agrees bool, why, found string, args ...any) {
	t := Trend{ID: id, Claim: claim, Where: where, Found: fmt.Sprintf(found, args...), Agrees: agrees}
	if !agrees {
		t.Why = why
	}
	s.Trends = append(s.Trends, t)
}

// AddGoal adds a goal of this project; why explains why it is missed.
func (s *Study) AddGoal(id, claim string, reached bool, why, found string, args ...any) {
	s.AddTrend(id, "goal", claim, reached, why, found, args...)
	s.Trends[len(s.Trends)-1].Goal = true
}

func (r *runner) trend(id, where, claim string, agrees bool, why, found string, args ...any) {
	r.out.AddTrend(id, where, claim, agrees, why, found, args...)
}
