// Command edgestudy repeats the studies of the papers, on this transport or under traces, and asks further questions of
// the same kind: what translation, notifications, exports, connections and memory on demand cost.
package main

import (
	"os"

	"multiedge/bench/cli"
	"multiedge/internal/buildinfo"
)

const description = `Studies of the edge transport: what its parts cost, and what the papers found.

Those with --lab run in hosts, links and daemons that are made for the run and removed after it.`

// version can be set by the linker: -ldflags "-X main.version=1.2.3".
var version string

func init() { version = buildinfo.Version(version) }

// commands is the whole command line.
type commands struct {
	cli.Flags

	Scale    scaleCmd    `cmd:"" help:"The cost of very many connections: memory for each, connect/close cycles, and whether everything is given back."`
	Handles  handlesCmd  `cmd:"" help:"The cost of memory that is exported and not used: a thousand exports in use, of a thousand and of up to a million."`
	Notify   notifyCmd   `cmd:"" help:"The cost of a notification, from the frame to the handler and back, and of exports and imports: the VMMC paper's figure 9 (in a lab)."`
	Eager    eagerCmd    `cmd:"" help:"Latency of messages that travel while they are composed, beside gathered and copied ones: the EDT paper's figures 8 and 9 (in a lab)."`
	OnDemand onDemandCmd `cmd:"" name:"ondemand" help:"Memory that is pinned on demand: hits, misses, working sets, policies, other ways to prepare memory for transfers, and a bystander (in a lab)."`
	Splash   splashCmd   `cmd:"" help:"Parallel programs on shared memory (dsm): FFT, LU, Radix, Ocean, Barnes, Water; where their time goes, and whether the results are those of one rank (in a lab)."`
	UTLB     utlbCmd     `cmd:"" name:"utlb" help:"Address translation under traces of parallel programs: the tables and figures of the UTLB paper (no network)."`
	DHL      dhlCmd      `cmd:"" name:"dhl" help:"Lookup caches under traces of parallel programs: the figures of the dynamic handle lookup paper (no network)."`
	Fabric   fabricCmd   `cmd:"" name:"fabric" help:"A data centre in simulation, 64 to 1,024 hosts that run the production engine: slowdown of flows over size, goodput, drops, fairness, beside a model of DCTCP (no network)."`
	Fairness fairnessCmd `cmd:"" name:"fairness" help:"IP links beside TCP with CUBIC over round trips, buffers, lanes and a policer, and alone on long and lossy lines, in simulation (no network)."`
}

func main() { os.Exit(run()) }

func run() int {
	return cli.Main(&commands{}, cli.Program{Name: "edgestudy", Description: description, Version: version})
}
