// Package handles finds out what memory costs that is exported and not used: a thousand exports in use, of as many and
// of up to a million (dynamic handle lookup, §IV and §V). Three ways: in the table of the transport alone; exported on
// connections, so that the peer is told of each; and offered by a catalog, of which the peer learns what it asks for.
package handles

// Spec says how much.
type Spec struct {
	Peer    string   `json:"peer"`
	Exports []int    `json:"exports"` // how many, one step after the other
	InUse   int      `json:"in_use"`
	Writes  int      `json:"writes"` // of a round, one after the other; then twice as many at once
	Ways    []string `json:"ways"`   // of Ways, without Table
}

// Ways to have exports.
const (
	Table   = "table"
	Granted = "granted"
	Catalog = "catalog"
)

// Step is what one number of exports came to, in one way.
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

// Result is what a run came to.
type Result struct {
	Spec
	Steps []Step `json:"steps"`
}
