// Package machine measures what elementary operations of the operating system and the processor cost (report.Card): the
// units in which latencies of a transport can be read on any machine. It takes about half a second, once for a command;
// commands that it starts inherit the card in the environment.
//
//	This      describes the machine, with its card
//	Measure   the card: cpu.go (copies, ciphers, sums), memory.go (first touch), handover.go (switches and wake-ups)
//	Peer      the second process of hand-overs; it is this program, started with CommandPeer
//
// Every figure is the best of several batches: other programs can only make a batch slower.
package machine

import (
	"encoding/json"
	"os"
	"sync"

	"multiedge/bench/report"
)

// CardVariable is the environment variable that carries the card, as JSON, to commands that this one starts.
const CardVariable = "EDGEBENCH_MACHINE_CARD"

// This describes the machine that the caller runs on, with its card, which is measured by the first call of a command.
func This() report.Machine {
	m := report.ThisMachine() // before the card, which makes load
	card := inherited()
	m.Card = &card
	return m
}

var inherited = sync.OnceValue(func() (c report.Card) {
	if json.Unmarshal([]byte(os.Getenv(CardVariable)), &c) == nil && c.SystemCall > 0 {
		return c
	}
	c = Measure()
	if text, err := json.Marshal(c); err == nil {
		os.Setenv(CardVariable, string(text))
	}
	return c
})
