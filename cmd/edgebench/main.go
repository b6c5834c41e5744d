// Command edgebench measures the edge transport: throughput, latency, processor time, what happens to frames, and
// whether every byte arrives. Both ends run on two hosts (edgebench server, edgebench one-way PEER) or, with --lab, on
// this machine.
package main

import (
	"os"

	"multiedge/bench/cli"
	"multiedge/internal/buildinfo"
)

const description = `Benchmarks of the edge transport.

On two hosts that run edged: "edgebench server" on one, "edgebench one-way PEER" on the other.
On one machine, with hosts, links and daemons made for the run and removed after it: "edgebench one-way --lab".`

// version can be set by the linker: -ldflags "-X main.version=1.2.3".
var version string

func init() { version = buildinfo.Version(version) }

// commands is the whole command line.
type commands struct {
	cli.Flags

	OneWay     oneWayCmd     `cmd:"" name:"one-way" help:"Remote writes back to back in one direction; the receiver signals the end."`
	TwoWay     twoWayCmd     `cmd:"" name:"two-way" help:"Both ends write back to back; throughput counts both directions."`
	PingPong   pingPongCmd   `cmd:"" name:"ping-pong" help:"Request and reply by remote writes; latency is half a round trip."`
	Read       readCmd       `cmd:"" help:"Remote reads back to back."`
	Atomic     atomicCmd     `cmd:"" set:"sizes=8; 4 or 8 are possible" help:"Remote atomics back to back, each on a word of its own."`
	Rate       rateCmd       `cmd:"" help:"Small writes, as many as possible per second."`
	Send       sendCmd       `cmd:"" help:"Messages by send and receive, compared with writes: latency, and small messages per second."`
	Compare    compareCmd    `cmd:"" set:"regions=4m, then 256m" help:"The same work over raw packet sockets, edge, TCP and other installed transports, interleaved (in a lab)."`
	Schedulers schedulersCmd `cmd:"" set:"sizes=4k to 1m" help:"Throughput over unequal links with each scheduler: the paper's figure 3.5 (in a lab)."`
	Polling    pollingCmd    `cmd:"" set:"sizes=4k to 1m; ping-pong also 8" help:"Throughput, processor time and latency when waiting by blocking, adaptively and by polling: the paper's figure 3.3 (in a lab)."`
	ZeroCopy   zeroCopyCmd   `cmd:"" name:"zero-copy" set:"sizes=4k to 4m; ping-pong 8 to 1m" help:"Throughput, processor time, latency and alignment with copies at both ends, with copies at the receiver, with pages exchanged in two ways, and without copies: the paper's figures 3.8, 3.9 and 3.11 (in a lab)."`
	Links      linksCmd      `cmd:"" help:"Throughput over 1, 2, 4 and 8 links, shaped and not (in a lab)."`
	Shards     shardsCmd     `cmd:"" help:"Throughput and processor time with one and with several threads serving the links of a daemon (in a lab)."`
	Profile    profileCmd    `cmd:"" set:"sizes=1m; ping-pong and rate 8" help:"Where the nanoseconds of a frame go at each end, in the paper's labels (in a lab)."`
	Demo       demoCmd       `cmd:"" help:"One-way, two-way and ping-pong between two hosts on this machine, checked, with a page of figures."`
	Server     serverCmd     `cmd:"" help:"Serve clients of another host."`
	Figures    figuresCmd    `cmd:"" help:"Draw the figures of the five papers, and further ones: measures each in a short form, or draws the results in --from, and says which claims of the papers hold; --list names every figure and table, what draws it, or why nothing does."`
	Machine    machineCmd    `cmd:"" help:"What elementary operations cost on this machine: system calls, switches, wake-ups, first touch, copies, ciphers; about a second."`
	Plot       plotCmd       `cmd:"" help:"Draw figures (SVG, PNG) and one HTML page from result files."`

	PGO pgoCmd `cmd:"" name:"pgo" hidden:"" help:"Renew the profiles that the compiler uses (make pgo)."`
}

func main() { os.Exit(run()) }

func run() int {
	defer startProfile()()
	return cli.Main(&commands{}, cli.Program{Name: "edgebench", Description: description, Version: version,
		Rewrite: fromPerftest})
}
