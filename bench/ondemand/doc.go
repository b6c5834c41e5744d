// Package ondemand measures memory that is pinned on demand: spaces (edge/space) against memory that is registered
// whole, at each transfer, through a cache of registrations, or copied; over working sets, patterns and policies; what
// a hit, a miss and the library's check cost; and how long another program's reads take beside one that misses all the
// time.
//
// Run is the client, on one host, and Serve the server on the other. Each cell of a study dials anew: what the server
// is to have there goes with the dial (Target), and the notifications of a connection are orders to it.
package ondemand

import (
	"encoding/json"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge/space"
	"multiedge/regmem"
)

// Spec says how much.
type Spec struct {
	Peer     string   `json:"peer"`
	Sockets  []string `json:"sockets"` // of the daemons of both hosts, this one's first
	Parts    []string `json:"parts"`   // of Parts
	Cell     float64  `json:"cell"`    // seconds that a cell is measured
	Rounds   int      `json:"rounds"`  // of what is compared in turns
	Budget   int      `json:"budget"`  // bytes that spaces may pin
	Sizes    []int    `json:"sizes"`   // of operations
	Sets     []int    `json:"sets"`    // working sets, in per cent of the budget
	Policies []string `json:"policies"`
	Patterns []string `json:"patterns"`
	Variant  string   `json:"variant,omitempty"` // what the daemons do with data that misses; empty: park
	Ahead    string   `json:"ahead,omitempty"`   // what they pin before it is used; empty: exact
}

// Parts of the study.
const (
	Costs     = "costs"
	Sweep     = "sweep"
	Ways      = "ways"
	Shares    = "shares"   // of misses, with daemons that park, such that use what is there, and such that drop
	Prefetch  = "prefetch" // with daemons of each setting
	Misses    = "misses"   // of a ping-pong: with daemons that drop, and such that park
	Bystander = "bystander"
)

// Parts are all parts.
var Parts = []string{Costs, Sweep, Ways, Shares, Misses, Prefetch, Bystander}

// Target is what a server is asked to have.
type Target struct {
	Size    int    `json:"size"`
	Whole   bool   `json:"whole,omitempty"` // registered whole: what follows but Fill does not matter
	Pin     int    `json:"pin,omitempty"`
	Chunk   int    `json:"chunk,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Hold    int    `json:"hold,omitempty"` // bytes from the start that stay pinned
	Fill    bool   `json:"fill,omitempty"` // the program has written to all pages
	Huge    bool   `json:"huge,omitempty"`
	Prepare int    `json:"prepare,omitempty"` // bytes from the start that are pinned at first
	Pong    int    `json:"pong,omitempty"`    // bytes of the longest answer to a ping; 0: there are no pings
}

func (t *Target) json() []byte {
	b, _ := json.Marshal(t) // of numbers and words
	return b
}

// Cost is what an operation takes, one at a time, by what it meets at one site.
type Cost struct {
	Site      string         `json:"site"`
	Bytes     int            `json:"bytes"`
	Whole     report.Latency `json:"registered_ns"`
	Hit       report.Latency `json:"hit_ns"`
	Resident  report.Latency `json:"miss_resident_ns"`  // pages are there, not pinned
	Untouched report.Latency `json:"miss_untouched_ns"` // nor are pages
	Missed    float64        `json:"missed"`            // share of uses that did, of those that should
}

// Timing is what a function takes, in nanoseconds: the least of many turns.
type Timing struct {
	What string  `json:"what"`
	N    int     `json:"n,omitempty"`
	Ns   float64 `json:"ns"`
}

// Point is a cell of the sweep: bytes per second with many operations in flight, and latency of one at a time.
type Point struct {
	Kind    string         `json:"kind"` // write or read
	Bytes   int            `json:"bytes"`
	Set     int            `json:"set_percent"` // 0: registered whole
	Policy  string         `json:"policy"`
	Pattern string         `json:"pattern"`
	Rate    float64        `json:"bytes_per_second"`
	Latency report.Latency `json:"latency_ns"`
	Missed  float64        `json:"missed"` // share of uses
}

// Way is what one way to have memory for transfers came to, at the source of writes.
type Way struct {
	Name    string         `json:"name"`
	Set     int            `json:"set_percent"`
	Pattern string         `json:"pattern"`
	Rate    float64        `json:"bytes_per_second"`
	Latency report.Latency `json:"latency_ns"`
	Pinned  int            `json:"pinned_bytes"` // at most
}

// Share is what writes came to of which so many per cent miss, medians over rounds.
type Share struct {
	Variant string    `json:"variant"`
	Percent int       `json:"percent"` // -1: registered whole
	Rates   []float64 `json:"bytes_per_second"`
	P99     []float64 `json:"p99_ns"`
	Missed  float64   `json:"missed"`
}

// Beside is what a bystander's writes take while another program works, by round.
type Beside struct {
	Variant string    `json:"variant"`
	Load    string    `json:"load"`
	P50     []float64 `json:"p50_ns"`
	P99     []float64 `json:"p99_ns"`
	Done    []float64 `json:"load_operations_per_second"`
}

// Result is the outcome of a run.
type Result struct {
	Spec
	Costs   []Cost   `json:"costs,omitempty"`
	Timings []Timing `json:"timings,omitempty"`
	Tables  Tables   `json:"utlb_tables"`
	Points  []Point  `json:"points,omitempty"`
	Ways    []Way    `json:"ways,omitempty"`
	Shares  []Share  `json:"shares,omitempty"`
	Pings   []Pings  `json:"pings,omitempty"`
	Besides []Beside `json:"bystander,omitempty"`

	Foresights []Foresight `json:"prefetch,omitempty"`
	Times      []MissTimes `json:"miss_times,omitempty"`
}

// mapOptions are what a Target asks of a space.
func (t *Target) mapOptions() (o space.Options, err error) {
	o = space.Options{Pin: t.Pin, Chunk: t.Chunk, Huge: t.Huge, PrePin: t.Prepare}
	o.Policy, err = regmem.PolicyByName(t.Policy)
	return o, err
}

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("ondemand", Serve, Run)
