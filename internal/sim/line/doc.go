// Package line has senders that share one long line, in virtual time: the windows, ledgers and acknowledgements of this
// transport (flowctl), and TCP with CUBIC to compare with. Each always has something to send, and takes no time to
// compute.
//
//	line.go   the clock, and one direction of a line: a rate, a delay, a queue that drops, losses, a policer
//	edge.go   a sender of this transport, of one lane, and its receiver
//	tcp.go    a TCP sender, and its receiver
//
// One goroutine runs it, and a seed is a run. internal/sim/fabric simulates whole engines in a building, many times as
// slowly.
package line
