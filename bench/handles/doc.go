// Package handles measures the cost of exports that are not used: a thousand exports are in use, of a thousand and of
// up to a million (dynamic handle lookup, §IV and §V). It measures the transport's table alone, exports on connections,
// of which the peer learns all, and exports of a catalog, of which the peer learns those that it asks for.
package handles

import (
	"fmt"
	"slices"

	"multiedge/bench/kit"
)

// Spec is the size of a run.
type Spec struct {
	Peer    string   `json:"peer"`
	Exports []int    `json:"exports"` // how many, one step after the other
	InUse   int      `json:"in_use"`
	Writes  int      `json:"writes"` // of a round, one after the other; then twice as many at once
	Ways    []string `json:"ways"`   // of Ways, without Table
}

// Ways to export.
const (
	Table   = "table"
	Granted = "granted"
	Catalog = "catalog"
)

// Step is the result of one number of exports, exported in one way.
type Step struct {
	Way     string  `json:"way"`
	Exports int     `json:"exports"`
	Setup   float64 `json:"setup_seconds"`
	Lookup  float64 `json:"lookup_ns,omitempty"` // of the table: the least of many turns over those in use

	// of a write of 16 bytes to one in use, in nanoseconds, medians over rounds; and writes a second, 16 at once
	P50  float64 `json:"write_p50_ns,omitempty"`
	P99  float64 `json:"write_p99_ns,omitempty"`
	Rate float64 `json:"writes_per_second,omitempty"`

	// bytes of an export beyond those of the first step: of the table, or of the processes' resident memory
	Bytes     float64 `json:"bytes_per_export"` // table, or daemon of the exporter
	Exporter  float64 `json:"exporter_bytes"`   // its program
	Importer  float64 `json:"importer_bytes"`   // its program
	ImpDaemon float64 `json:"importer_daemon_bytes"`
	Hot       float64 `json:"hot_bytes,omitempty"` // of the table's cache
}

// Result is the outcome of a run.
type Result struct {
	Spec
	Steps []Step `json:"steps"`
}

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("handles", Serve, Run)

// Limits is what daemons must allow for a run: lines for their [limits].
func (s *Spec) Limits() string {
	return fmt.Sprintf("exports = %d\nrequests = 65536", slices.Max(s.Exports)+1000)
}
