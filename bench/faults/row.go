package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// Groups of scenarios.
const (
	Network   = "network"
	Host      = "host"
	Adversary = "adversary"
	Load      = "load"
)

// Verdicts.
const (
	Pass = "pass"
	Fail = "FAIL"
	// Again: only figures of speed were missed, while a hypervisor took processors (stolenMost). Another row has the
	// outcome of the scenario.
	Again = "again"
	// Unjudged: a figure of speed in the short form, whose windows are too brief to judge.
	Unjudged = "-"
)

// Row is the outcome of one scenario.
type Row struct {
	Group    string             `json:"group"`
	Scenario string             `json:"scenario"`
	Criteria string             `json:"criteria"` // when it passes, besides U1 to U5
	Forms    string             `json:"forms"`    // which run it: Scenario.Forms
	Injected map[string]uint64  `json:"injected"` // faults, by kind
	Counted  map[string]uint64  `json:"counted"`  // what the daemons' metrics or the clients saw of them
	Measured map[string]float64 `json:"measured"` // by name with unit
	Checks   []Check            `json:"checks"`   // the scenario's own criteria, one by one
	U        [5]Check           `json:"u"`        // U1 to U5
	Verdict  string             `json:"verdict"`
	Security string             `json:"security"` // what the wire was: "plaintext" or "encrypted"
	Seconds  float64            `json:"seconds"`
	Stolen   float64            `json:"stolen_share"`    // of the processors, by a hypervisor meanwhile
	Error    string             `json:"error,omitempty"` // the scenario could not be carried out
}

// Check is one criterion and how it came out.
type Check struct {
	What    string   `json:"what"`
	Verdict string   `json:"verdict"`
	Why     []string `json:"why,omitempty"`   // of a failure
	Speed   bool     `json:"speed,omitempty"` // it is about a figure of speed
}

// fail makes a check fail, with a reason.
func (c *Check) fail(format string, args ...any) {
	c.Verdict = Fail
	if len(c.Why) < 6 {
		c.Why = append(c.Why, fmt.Sprintf(format, args...))
	}
}

func newRow(s *Scenario) *Row {
	r := &Row{Group: s.Group, Scenario: s.Name, Criteria: s.Criteria, Forms: s.Forms(),
		Injected: map[string]uint64{}, Counted: map[string]uint64{}, Measured: map[string]float64{}}
	for i, what := range []string{"memory equals the oracle",
		"operations end once, in time, with success or a typed error",
		"nothing left behind", "faults injected and counted", "no panic, all alive"} {
		r.U[i] = Check{What: fmt.Sprintf("U%d %s", i+1, what), Verdict: Pass}
	}
	return r
}

// stolen records the share of the processors that a hypervisor took since report.StolenSeconds returned was. If the
// share is large, stalls and goodput say more about the hypervisor than about the transport.
func (r *Row) stolen(was float64) {
	if r.Stolen = report.StolenShare(was, r.Seconds); r.Stolen > 0.01 {
		r.Measured["processors stolen %"] = 100 * r.Stolen
	}
}

// stolenMost is the largest share of the processors that a hypervisor may take. Beyond it, a missed figure of speed
// means nothing.
const stolenMost = 0.05

// disturbed reports whether a row failed only in figures of speed while a hypervisor took processors.
func (r *Row) disturbed() bool {
	for _, c := range r.all() {
		if c.Verdict == Fail && !c.Speed {
			return false
		}
	}
	return r.Verdict == Fail && r.Error == "" && r.Stolen > stolenMost
}

// close gives the verdict.
func (r *Row) close() {
	r.Verdict = Pass
	if len(r.Reasons()) > 0 {
		r.Verdict = Fail
	}
}

func (r *Row) all() []Check { return slices.Concat(r.Checks, r.U[:]) }

// Reasons returns why a row failed.
func (r *Row) Reasons() []string {
	var out []string
	if r.Error != "" {
		out = append(out, "could not be carried out: "+r.Error)
	}
	for _, c := range r.all() {
		if c.Verdict == Fail {
			out = append(out, c.What+": "+strings.Join(c.Why, "; "))
		}
	}
	return out
}

// marks returns the verdicts of U1 to U5 in five characters.
func (r *Row) marks() string {
	b := []byte("12345")
	for i, c := range r.U {
		if c.Verdict == Fail {
			b[i] = 'x'
		}
	}
	return string(b)
}

// words writes a map in a fixed order: "lost 12, cut 3".
func words[V any](m map[string]V, format func(V) string) string {
	keys := slices.Sorted(maps.Keys(m))
	for i, k := range keys {
		keys[i] = k + " " + format(m[k])
	}
	return strings.Join(keys, ", ")
}

func counts(m map[string]uint64) string {
	return words(m, func(v uint64) string { return fmt.Sprint(v) })
}

func figures(m map[string]float64) string {
	return words(m, func(v float64) string { return fmt.Sprintf("%.4g", v) })
}
