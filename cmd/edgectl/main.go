// Edgectl asks a running edged about itself and the network it sees.
//
//	edgectl status | dev | link | peer | conn | export | region | client | ping NODE | doctor | drain | version
//	edgectl stat -i 1 | top | monitor
//	edgectl trace [LINK] [-w FILE]
//	edgectl key show | new | public
//	edgectl peers list | add KEY NAME | remove NAME
//	edgectl completion bash | zsh | fish
//
// Every command takes -j for JSON. The exit code is 0 if all is well, 1 if something is wrong, 2 for a wrong command
// line.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"multiedge/internal/buildinfo"
	"multiedge/internal/clidoc"
)

// version can be set by the linker: -ldflags "-X main.version=1.2.3".
var version string

func init() { version = buildinfo.Version(version) }

// errUnwell ends a command that has said already what is wrong.
var errUnwell = errors.New("something is wrong")

// globals are the options of every command.
type globals struct {
	JSON    bool             `short:"j" help:"Print JSON."`
	Socket  string           `short:"s" env:"EDGE_SOCKET" default:"/run/edged/edged.sock" placeholder:"PATH" predictor:"file" help:"Control socket of the daemon (default: ${default})."`
	Timeout time.Duration    `default:"10s" help:"How long to wait for the daemon (default: ${default})."`
	Print   kong.VersionFlag `name:"version" help:"Print the version and exit; edgectl version also shows the daemon's."`
	clidoc.Flags
	in    io.Reader
	out   io.Writer
	errs  io.Writer
	pause func(time.Duration)
}

type cli struct {
	globals
	Status  statusCmd  `cmd:"" help:"Show the daemon and its totals."`
	Dev     devCmd     `cmd:"" help:"Show the device that programs open: the links together."`
	Link    linkCmd    `cmd:"" help:"Show the local links."`
	Peer    peerCmd    `cmd:"" help:"Show the nodes that were heard, and the paths to them."`
	Conn    connCmd    `cmd:"" help:"Show connections."`
	Export  exportCmd  `cmd:"" help:"Show exported memory: owner, importers and use."`
	Region  regionCmd  `cmd:"" help:"Show registered memory."`
	Client  clientCmd  `cmd:"" help:"Show attached processes."`
	Stat    statCmd    `cmd:"" help:"Show rates of the daemon's and links' counters, interval by interval."`
	Top     topCmd     `cmd:"" help:"Show links, peers and connections by their traffic, refreshed each second."`
	Trace   traceCmd   `cmd:"" help:"Show the frames that pass the links, or write them to a pcapng file."`
	Ping    pingCmd    `cmd:"" help:"Measure round trips to a node, engine to engine."`
	Forward forwardCmd `cmd:"" help:"Carry TCP and Unix connections to a peer and back, for programs that use only sockets."`
	Doctor  doctorCmd  `cmd:"" help:"Find what is wrong or slow, and say what to do."`
	Monitor monitorCmd `cmd:"" help:"Show events as they happen: links, peers, paths, clients, reloads."`
	Drain   drainCmd   `cmd:"" help:"Make the daemon refuse new connections and memory, until drain --undo or a restart."`
	Key     keyCmd     `cmd:"" help:"Show and make the keys that identify nodes."`
	Peers   peersCmd   `cmd:"" help:"Show and change which nodes are authorised."`
	Version versionCmd `cmd:"" help:"Show the versions of edgectl and of the daemon."`

	Completion completionCmd `cmd:"" help:"Print the code that makes a shell complete edgectl's command lines."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	c := cli{globals: globals{in: os.Stdin, out: stdout, errs: stderr, pause: time.Sleep}}
	helped := false
	parser, err := kong.New(&c, kong.Name("edgectl"),
		kong.Description("Ask edged about links, peers, connections and memory."),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
		kong.Vars{"version": version}, kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }))
	if err != nil {
		fmt.Fprintln(stderr, "edgectl:", err)
		return 1
	}
	if completeLine(parser) {
		return 0
	}
	ctx, err := parser.Parse(args)
	if helped {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "edgectl: %v (edgectl --help lists the commands)\n", err)
		return 2
	}
	switch err := ctx.Run(&c.globals); {
	case errors.Is(err, errUnwell):
		return 1
	case err != nil:
		fmt.Fprintln(stderr, "edgectl:", clean(err.Error()))
		return 1
	}
	return 0
}

// decodeDuration reads a duration: 200ms and the like, or a number of seconds, as ping, stat -i and edgebench -D have
// it.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if v, bad := strconv.ParseFloat(text, 64); bad == nil && math.Abs(v) <= 1e9 {
		d, err = time.Duration(v*float64(time.Second)), nil
	}
	if err != nil {
		return fmt.Errorf("%q: want seconds, such as 3 or 0.5, or a duration such as 500ms", text)
	}
	target.SetInt(int64(d))
	return nil
}
