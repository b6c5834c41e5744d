// Command edgefault breaks networks, hosts, daemons and clients around the edge transport, on purpose, and judges what
// becomes of the work in hand.
package main

import (
	"os"
	"strings"

	"multiedge/bench/cli"
	"multiedge/bench/hostile"
	"multiedge/internal/buildinfo"
)

const description = `Faults for the edge transport, in hosts, links and daemons that are made for the run and removed after it.

Every scenario, and what it passes by: "edgefault run --list". All of them: "edgefault run --lab".`

// version can be set by the linker: -ldflags "-X main.version=1.2.3".
var version string

func init() { version = buildinfo.Version(version) }

// commands is the whole command line.
type commands struct {
	cli.Flags

	Run     runCmd     `cmd:"" default:"withargs" help:"Faults of networks, hosts and adversaries, injected into working daemons and clients: what they survive (in a lab)."`
	Soak    soakCmd    `cmd:"" help:"Faults of all kinds mixed for as long as you like, with memory, descriptors and latency over time (in a lab)."`
	Hostile hostileCmd `cmd:"" help:"Misbehave at a daemon, in one of these ways: ${hostile}."`
}

func main() { os.Exit(run()) }

func run() int {
	return cli.Main(&commands{}, cli.Program{Name: "edgefault", Description: description, Version: version,
		Variables: map[string]string{"hostile": strings.Join(hostile.Names(), ", ")}})
}
