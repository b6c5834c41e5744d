// Package eager measures eager transfer as the EDT paper does (§7, figures 8 and 9): two programs send each other
// messages of one size in turn. One turn is composing a message, which takes as long as is asked for, handing it to the
// transport, and its way until the peer's program has it.
//
//	eager     composed in registered memory; what is written is marked and travels meanwhile
//	gathered  composed in registered memory, in up to 16 pieces that are posted at the end
//	copied    composed in the program's own memory, copied to registered memory at the end and posted
package eager

import (
	"encoding/json"
	"os"
	"path/filepath"

	"multiedge/bench/kit"
	"multiedge/bench/report"
)

// Ways are the ways to send.
var Ways = [...]string{"eager", "gathered", "copied"}

// Spec is the size of a run.
type Spec struct {
	Peer    string `json:"peer"`
	MTU     int    `json:"mtu"`
	Rounds  int    `json:"rounds"`             // of each size, way and time
	Sizes   []int  `json:"sizes"`              // of messages, 64 to 65536 bytes
	Compose []int  `json:"compose_ns_per_kib"` // how long composing takes
	Marks   int    `json:"marks"`              // into how many parts of 512 bytes and more a message is divided at most
}

// Row is the result of one size, way and time of composing, in nanoseconds of a turn.
type Row struct {
	Bytes    int            `json:"bytes"`
	Way      string         `json:"way"`
	Compose  int            `json:"compose_ns_per_kib"`
	UserData report.Latency `json:"user_data_ns"` // composing, with its marks
	Copy     report.Latency `json:"copy_ns"`      // into registered memory
	Post     report.Latency `json:"post_ns"`      // the call that posts or commits
	Turn     report.Latency `json:"turn_ns"`      // half a round trip: composing, posting, and the way to the peer
}

// Transport is what is neither composing, copying nor posting, by medians.
func (r *Row) Transport() float64 { return max(0, r.Turn.P50-r.UserData.P50-r.Copy.P50-r.Post.P50) }

// Result is the outcome of a run.
type Result struct {
	Spec
	Rows []Row `json:"rows"`
}

// Find returns a row.
func (r *Result) Find(bytes, compose int, way string) *Row {
	for i := range r.Rows {
		if w := &r.Rows[i]; w.Bytes == bytes && w.Compose == compose && w.Way == way {
			return w
		}
	}
	return nil
}

// WriteRows writes everything measured and simulated as rows.json into a directory.
func WriteRows(dir string, results []*Result, models []Model) error {
	b, err := json.MarshalIndent(struct {
		Measured  []*Result `json:"measured"`
		Simulated []Model   `json:"simulated"`
	}{results, models}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "rows.json"), append(b, '\n'), 0o644)
}

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("eager", Serve, Run)
