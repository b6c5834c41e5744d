// Package notify measures notifications as VMMC does (§5.3, figure 9): from the frame with a write to the handler that
// runs for it, and back to the program that it interrupted, step by step; and what it costs to export and to import
// memory (§5.1).
//
//	host 0, Run:   post -> daemon sends the frame (its trace)
//	host 1, Serve: daemon has the frame (trace of its daemon) -> handler starts -> handler ends -> the thread runs on
//	               that the handler's was taken from: it reads the clock without end, at the lowest priority
//
// All times are of one clock, CLOCK_MONOTONIC, since both hosts are on this machine.
package notify

import (
	"multiedge/bench/kit"
	"multiedge/bench/report"
)

// Spec is the size of a run.
type Spec struct {
	Peer    string    `json:"peer"`
	Sockets [2]string `json:"sockets"` // of the daemons of both hosts, this one's first
	Rounds  int       `json:"rounds"`
	Bytes   int       `json:"bytes"` // of a write, 1 to 4096
	Waits   []string  `json:"waits"` // how the receiver waits, one run each: names of Waits
}

// Waits are the ways to wait for a notification.
var Waits = []string{"block", "adaptive", "busy"}

// Breakdown is the result of one way to wait, in nanoseconds.
type Breakdown struct {
	Wait     string         `json:"wait"`
	Post     report.Latency `json:"post_to_frame_ns"`      // until the sender's daemon sends the frame
	Arrival  report.Latency `json:"arrival_to_daemon_ns"`  // from there until the receiver's daemon has it
	Schedule report.Latency `json:"daemon_to_handler_ns"`  // until the handler starts
	Handler  report.Latency `json:"handler_ns"`            // until it ends
	Return   report.Latency `json:"return_ns"`             // until the interrupted thread runs, if before the next
	Overhead report.Latency `json:"receiver_overhead_ns"`  // arrival, scheduling and return, without the handler
	Missed   int            `json:"rounds_without_frames"` // of which the traces did not have both frames
	Efforts  report.Efforts `json:"efforts"`               // of all rounds and the pauses between them
}

// Setup is the cost of making memory ready for writes, in nanoseconds.
type Setup struct {
	Register report.Latency `json:"register_ns"` // a page: made, mapped and pinned
	Export   report.Latency `json:"export_ns"`   // under a name
	Import   report.Latency `json:"import_ns"`   // of a name at the peer, with the connection
	Unexport report.Latency `json:"unexport_ns"` // nobody imports it

	ImportHere report.Latency `json:"import_here_ns"` // of a name at the own node
}

// Result is the outcome of a run.
type Result struct {
	Spec
	Runs  []Breakdown `json:"runs"`
	Setup Setup       `json:"setup"`
}

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudyBySocket("notify", Serve, Run)
