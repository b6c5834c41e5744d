// Command edgebench measures the edge transport: throughput, latency, processor time, what happens to frames, and
// whether every byte arrives. Both ends run on two hosts (edgebench server, edgebench one-way PEER) or, with --lab, on
// this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"multiedge/bench"
	"multiedge/internal/buildinfo"
	"multiedge/internal/clidoc"
)

const description = `Benchmarks of the edge transport.

On two hosts that run edged: "edgebench server" on one, "edgebench one-way PEER" on the other.
On one machine, with hosts, links and daemons made for the run and removed after it: "edgebench one-way --lab".`

// version can be set by the linker: -ldflags "-X main.version=1.2.3".
var version string

func init() { version = buildinfo.Version(version) }

// cli is the whole command line.
type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit."`

	clidoc.Flags

	OneWay   oneWayCmd   `cmd:"" name:"one-way" help:"Remote writes back to back in one direction; the receiver signals the end."`
	TwoWay   twoWayCmd   `cmd:"" name:"two-way" help:"Both ends write back to back; throughput counts both directions."`
	PingPong pingPongCmd `cmd:"" name:"ping-pong" help:"Request and reply by remote writes; latency is half a round trip."`
	Read     readCmd     `cmd:"" help:"Remote reads back to back."`
	Atomic   atomicCmd   `cmd:"" set:"sizes=8; 4 or 8 are possible" help:"Remote atomics back to back, each on a word of its own."`
	Rate     rateCmd     `cmd:"" help:"Small writes, as many as possible per second."`
	Send     sendCmd     `cmd:"" help:"Messages by send and receive, compared with writes: latency, and small messages per second."`

	Compare    compareCmd    `cmd:"" set:"regions=4m, then 256m" help:"The same work over raw packet sockets, edge, TCP and other installed transports, interleaved (in a lab)."`
	Schedulers schedulersCmd `cmd:"" set:"sizes=4k to 1m" help:"Throughput over unequal links with each scheduler: the paper's figure 3.5 (in a lab)."`
	Polling    pollingCmd    `cmd:"" set:"sizes=4k to 1m; ping-pong also 8" help:"Throughput, processor time and latency when waiting by blocking, adaptively and by polling: the paper's figure 3.3 (in a lab)."`
	ZeroCopy   zeroCopyCmd   `cmd:"" name:"zero-copy" set:"sizes=4k to 4m; ping-pong 8 to 1m" help:"Throughput, processor time, latency and alignment with copies at both ends, with copies at the receiver, with pages exchanged in two ways, and without copies: the paper's figures 3.8, 3.9 and 3.11 (in a lab)."`
	Links      linksCmd      `cmd:"" help:"Throughput over 1, 2, 4 and 8 links, shaped and not (in a lab)."`
	Shards     shardsCmd     `cmd:"" help:"Throughput and processor time with one and with several threads serving the links of a daemon (in a lab)."`
	Profile    profileCmd    `cmd:"" set:"sizes=1m; ping-pong and rate 8" help:"Where the nanoseconds of a frame go at each end, in the paper's labels (in a lab)."`
	Scale      scaleCmd      `cmd:"" help:"The cost of very many connections: memory for each, connect/close cycles, and whether everything is given back."`
	Faults     faultsCmd     `cmd:"" help:"Faults of networks, hosts and adversaries, injected into working daemons and clients: what they survive (in a lab)."`
	Soak       soakCmd       `cmd:"" help:"Faults of all kinds mixed for as long as you like, with memory, descriptors and latency over time (in a lab)."`
	Handles    handlesCmd    `cmd:"" help:"The cost of memory that is exported and not used: a thousand exports in use, of a thousand and of up to a million."`
	Notify     notifyCmd     `cmd:"" help:"The cost of a notification, from the frame to the handler and back, and of exports and imports: the VMMC paper's figure 9 (in a lab)."`
	Eager      eagerCmd      `cmd:"" help:"Latency of messages that travel while they are composed, beside gathered and copied ones: the EDT paper's figures 8 and 9 (in a lab)."`
	OnDemand   onDemandCmd   `cmd:"" name:"ondemand" help:"Memory that is pinned on demand: hits, misses, working sets, policies, other ways to prepare memory for transfers, and a bystander (in a lab)."`
	UTLB       utlbCmd       `cmd:"" name:"utlb" help:"Address translation under traces of parallel programs: the tables and figures of the UTLB paper (no network)."`
	DHL        dhlCmd        `cmd:"" name:"dhl" help:"Lookup caches under traces of parallel programs: the figures of the dynamic handle lookup paper (no network)."`
	Demo       demoCmd       `cmd:"" help:"One-way, two-way and ping-pong between two hosts on this machine, checked, with a page of figures."`

	Server serverCmd `cmd:"" help:"Serve clients of another host."`

	drawn
	inside
}

// drawn are the commands that draw figures and describe the machine that they are of.
type drawn struct {
	Figures figuresCmd `cmd:"" help:"Draw the MultiEdge paper's figures and further ones: measures each in a short form, or draws the results in --from; --list names each one's paper and figure, what is not drawn, and the commands that draw other papers'."`
	Machine machineCmd `cmd:"" help:"What elementary operations cost on this machine: system calls, switches, wake-ups, first touch, copies, ciphers; about a second."`
	Plot    plotCmd    `cmd:"" help:"Draw figures (SVG, PNG) and one HTML page from result files."`
}

// inside are the commands that edgebench starts itself, in the hosts of a lab, and the one of make pgo.
type inside struct {
	Hostile     hostileClientCmd `cmd:"" name:"hostile-client" hidden:""`
	LabDaemon   labDaemonCmd     `cmd:"" name:"lab-daemon" hidden:""`
	LabStudy    labStudyCmd      `cmd:"" name:"lab-study" hidden:""`
	LabWorker   labWorkerCmd     `cmd:"" name:"lab-worker" hidden:""`
	LabEnter    labEnterCmd      `cmd:"" name:"lab-enter" hidden:""`
	LabFault    labFaultCmd      `cmd:"" name:"lab-fault" hidden:""`
	LabConfined labConfinedCmd   `cmd:"" name:"lab-confined" hidden:""`
	LabGrouped  labGroupedCmd    `cmd:"" name:"lab-grouped" hidden:""`
	MachinePeer machinePeerCmd   `cmd:"" name:"machine-peer" hidden:""`
	PGO         pgoCmd           `cmd:"" name:"pgo" hidden:"" help:"Renew the profiles that the compiler uses (make pgo)."`
}

func main() { os.Exit(run()) }

func run() int {
	if err := bench.BindProcessors(); err != nil {
		return fail(err)
	}
	defer startProfile()()
	var c cli
	parser := kong.Must(&c, kong.Name("edgebench"), kong.Description(description), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Vars(variables()))
	if clidoc.Complete(parser) {
		return 0
	}
	args, notes, err := fromPerftest(os.Args[1:])
	if err != nil {
		return usageError(err)
	}
	kctx, err := parser.Parse(args)
	if err == nil {
		err = misplaced(kctx)
	}
	if err != nil {
		return usageError(err)
	}
	for _, n := range notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	endings := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		endings = append(endings, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings...)
	defer stop()
	kctx.BindTo(ctx, (*context.Context)(nil))
	if err := kctx.Run(); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "edgebench: interrupted; "+whatElse(err))
			return 130
		}
		return fail(err)
	}
	return 0
}

// whatElse says how it stands after an interruption that ended with err: data that arrived wrong before is no less
// wrong.
func whatElse(err error) string {
	if rest := besideCancel(err); rest != nil {
		return rest.Error()
	}
	return "everything that was set up is removed"
}

// besideCancel leaves out of joined errors those that say no more than that the context has ended.
func besideCancel(err error) (rest error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	for _, e := range joined.Unwrap() {
		rest = errors.Join(rest, besideCancel(e))
	}
	return rest
}

// usageError explains a command line that makes no sense.
func usageError(err error) int {
	fmt.Fprintf(os.Stderr, "edgebench: %v\nRun \"edgebench --help\" or \"edgebench COMMAND --help\".\n", err)
	return 2
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "edgebench: %v\n", err)
	return 1
}
