package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"multiedge/bench"
	"multiedge/bench/hostile"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/sched"
)

// variables are what help texts refer to.
func variables() kong.Vars {
	return kong.Vars{"version": version, "sizes": "64k; ping-pong and rate 8", "regions": "256m",
		"formats": strings.Join(report.Formats, ","), "schedulers": strings.Join(sched.Names(), ", "),
		"hostile": strings.Join(hostile.Names(), ", ")}
}

// count is a number of things on the command line, of which there is one at least.
type count int

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *count) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if *c = count(n); err != nil || n < 1 {
		return fmt.Errorf("%q: want a whole number, 1 at least", text)
	}
	return nil
}

// size is a number of bytes on the command line. It must lie in memory.
type size int

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *size) UnmarshalText(text []byte) error {
	n, err := report.ParseBytes(string(text))
	if m := report.MachineMemory(); err == nil && m > 0 && n > m {
		err = fmt.Errorf("size %q is too large for this machine's memory of %s", text, report.Bytes(m))
	}
	*s = size(n)
	return err
}

// region is how much memory is registered.
type region size

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *region) UnmarshalText(text []byte) error {
	err := (*size)(r).UnmarshalText(text)
	if err == nil && *r == 0 {
		err = fmt.Errorf("region %q: want more than nothing", text)
	}
	return err
}

// seconds is a duration on the command line: a number is seconds, as in perftest; 500ms and the like work, too.
type seconds time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *seconds) UnmarshalText(text []byte) error {
	if v, err := strconv.ParseFloat(string(text), 64); err == nil {
		*s = seconds(v * float64(time.Second))
	} else if d, err := time.ParseDuration(string(text)); err == nil {
		*s = seconds(d)
	} else {
		return fmt.Errorf("%q: want seconds, such as 3 or 0.5, or a duration such as 500ms", text)
	}
	if *s <= 0 {
		return fmt.Errorf("%q: want more than nothing", text)
	}
	return nil
}

// sizeRange is MIN:MAX on the command line.
type sizeRange struct{ lo, hi size }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *sizeRange) UnmarshalText(text []byte) error {
	lo, hi, ok := strings.Cut(string(text), ":")
	err := r.lo.UnmarshalText([]byte(lo))
	if err == nil && ok {
		err = r.hi.UnmarshalText([]byte(hi))
	}
	if err == nil && (r.hi < r.lo || r.lo < 1) {
		err = fmt.Errorf("range %q: want MIN:MAX, such as 64:1m", text)
	}
	return err
}

// sizeFlags choose the message sizes of a test.
type sizeFlags struct {
	Size  []size     `short:"s" help:"Message size in bytes; 64k and 1m work. Several may be given (default: ${sizes})." placeholder:"SIZE"`
	All   bool       `short:"a" help:"All sizes: powers of two from 2 to 8 MiB."`
	Range *sizeRange `short:"m" help:"Powers of two from MIN to MAX." placeholder:"MIN:MAX"`
}

func (f *sizeFlags) sizes() []int {
	switch {
	case f.All:
		return bench.AllSizes()
	case f.Range != nil:
		return bench.SizeRange(int(f.Range.lo), int(f.Range.hi))
	}
	return ints(f.Size)
}

// ints are numbers of the command line as numbers.
func ints[T ~int](list []T) (n []int) {
	for _, v := range list {
		n = append(n, int(v))
	}
	return n
}

// workFlags say how much of a test to do.
type workFlags struct {
	Iters     count   `short:"n" help:"Messages for each size, from each sender, instead of -D." placeholder:"ITER"`
	Duration  seconds `short:"D" help:"Seconds for each size (default: 1)." placeholder:"SECONDS"`
	Depth     count   `short:"t" help:"Operations in flight from each sender (default: 128, read 64, rate 512; fewer of large messages; ping-pong always 1)." placeholder:"DEPTH"`
	Batch     count   `help:"Operations posted at once (default: 1, rate 32)." placeholder:"N"`
	Integrity bool    `help:"Fill messages with patterns and compare every byte where it arrives."`
	Seed      uint64  `default:"1" help:"Seed of message contents and of a lab's faults."`
	Region    region  `help:"Memory to register for each direction (default: ${regions}); caches hold 4m, none holds 256m." placeholder:"SIZE"`
}

// connFlags spread the operations of a test over connections.
type connFlags struct {
	Conns []count `help:"Connections that share the operations in flight, by turns (default: 1). Several numbers are measured one after another, while the largest number stays open." placeholder:"N"`
}

// plan puts the flags of a test together.
func plan(test string, s *sizeFlags, w *workFlags) bench.Plan {
	return bench.Plan{
		Test: test, Sizes: s.sizes(), Count: uint64(w.Iters), Duration: time.Duration(w.Duration), Depth: int(w.Depth),
		Batch: int(w.Batch), Integrity: w.Integrity,
		Seed: w.Seed, Region: int(w.Region),
	}
}

// transportFlags set the transport up.
type transportFlags struct {
	Scheduler string `help:"How frames are spread over links: ${schedulers} (default: the daemon's)." placeholder:"NAME"`
	Security  string `enum:"encrypted,plaintext," default:"" help:"encrypted or plaintext (default: encrypted). Only with --lab or --embedded; a daemon has its own." placeholder:"WHAT"`
	Checksum  string `enum:"full,header," default:"" help:"What CRC32C covers in plaintext: full or header. Only with --lab or --embedded." placeholder:"WHAT"`
	Profile   string `help:"Flow control: default or paper. Only with --lab or --embedded." placeholder:"NAME"`
	Poll      string `enum:"adaptive,block,busy," default:"" help:"How processes wait: adaptive, block or busy (default: adaptive; a daemon has its own)." placeholder:"MODE"`
	Driver    string `enum:"alone,ring,mmsg,udp," default:"" help:"How links move frames: udp (super-frames, GSO and GRO), alone, ring or mmsg (default: udp on veth, but alone with --lab-rates, which stand for NICs). Only with --lab or --embedded." placeholder:"NAME"`
	Embedded  bool   `help:"Run the transport inside the benchmark processes, without daemons."`
}

// labFlags describe hosts on this machine.
type labFlags struct {
	Lab          bool      `help:"Build the hosts on this machine, run both ends, remove everything. Needs no root where user namespaces are allowed."`
	LabHosts     count     `default:"2" help:"Hosts; the first two run the benchmark (default: ${default})." placeholder:"N"`
	LabLinks     int       `default:"0" help:"Links between the hosts (default: as many as --lab-rates, or 1)." placeholder:"K"`
	LabMTU       count     `name:"lab-mtu" default:"9000" help:"MTU of the links (default: ${default})." placeholder:"M"`
	LabRates     []string  `help:"Rates of the links, such as 10gbit,1gbit; one for all or one for each." placeholder:"RATE"`
	LabWeights   []float64 `help:"Weights of links for wsrr and wd (default: their rates)." placeholder:"W"`
	LabLoss      float64   `help:"Share of frames that the wires lose, 0 to 1." placeholder:"P"`
	LabDup       float64   `help:"Share of frames delivered twice." placeholder:"P"`
	LabCorrupt   float64   `help:"Share of frames with a bit flipped." placeholder:"P"`
	LabReorder   float64   `help:"Share of frames held back by a millisecond." placeholder:"P"`
	LabPin       bool      `default:"true" negatable:"" help:"Give each host its own processors."`
	LabShards    count     `default:"1" help:"Threads that serve the links of each daemon (default: ${default})." placeholder:"N"`
	LabReceivers int       `help:"Receivers of each shard: further threads that receive." placeholder:"N"`
	LabLog       string    `help:"Level of the daemons' log: debug, info, warn or error." placeholder:"LEVEL"`
}

// cluster returns the hosts the flags describe.
func (f *labFlags) cluster(t *transportFlags, seed uint64) bench.ClusterSpec {
	links := f.LabLinks
	if links == 0 {
		links = max(1, len(f.LabRates))
	}
	return bench.ClusterSpec{
		Lab: lab.Spec{
			Hosts: int(f.LabHosts), Links: links, MTU: int(f.LabMTU), Rates: f.LabRates, Seed: seed,
			Faults: lab.Faults{Loss: f.LabLoss, Dup: f.LabDup, Corrupt: f.LabCorrupt, Reorder: f.LabReorder},
		},
		Scheduler: t.Scheduler, Security: t.Security, Checksum: t.Checksum, Profile: t.Profile, Poll: t.Poll,
		Driver: t.Driver, Weights: f.LabWeights, Embedded: t.Embedded, Pin: f.LabPin, Shards: int(f.LabShards),
		Receivers: f.LabReceivers, Log: f.LabLog,
	}
}

// localFlags reach the transport of this host.
type localFlags struct {
	Socket string   `help:"Control socket of the daemon (default: $$EDGE_SOCKET or /run/edged/edged.sock)." placeholder:"PATH"`
	Link   []string `help:"Interfaces to use with --embedded." placeholder:"NAME"`
	Name   string   `help:"Name of this node with --embedded." placeholder:"NAME"`
	Key    string   `name:"key-file" help:"Private key of this node with --embedded, made if it does not exist." placeholder:"FILE"`
	Peers  string   `name:"peers-file" help:"Authorised peers with --embedded (edgectl peers add --file)." placeholder:"FILE"`
}

// transport returns how this process reaches the transport without a lab.
func (f *localFlags) transport(t *transportFlags, depth int) (bench.Transport, error) {
	tr := bench.Transport{Socket: f.Socket, Wait: t.Poll, Depth: depth}
	if !t.Embedded {
		if t.Checksum != "" || t.Profile != "" || t.Security != "" || t.Driver != "" {
			return tr,
				fmt.Errorf("--security, --checksum, --profile and --driver are the daemon's to choose, see edged's " +
					"configuration; with --lab or --embedded they work here")
		}
		return tr, nil
	}
	if len(f.Link) == 0 {
		return tr, fmt.Errorf("--embedded needs --link with at least one interface, or --lab")
	}
	switch {
	case t.Security == config.Plaintext:
	case t.Checksum != "":
		return tr, fmt.Errorf("--checksum is of plaintext: leave it out, or add --security plaintext")
	case f.Key == "" || f.Peers == "":
		return tr, fmt.Errorf("--embedded needs --key-file and --peers-file, so that the two nodes can authorise " +
			"each other; or --security plaintext on trusted wires")
	}
	tr.Embedded = &edge.Embedded{Security: t.Security, KeyFile: f.Key, PeersFile: f.Peers, Links: f.Link, Name: f.Name,
		Scheduler: t.Scheduler, Profile: t.Profile, Checksum: t.Checksum, Poll: t.Poll, Driver: t.Driver}
	return tr, nil
}

// clashes are pairs of flags that choose the same, of which one would go unheard.
var clashes = []struct{ one, other, text string }{
	{"iters", "duration", "-n ends after so many messages, -D after so much time: leave out -D for the one, -n for " +
		"the other"},
	{"all", "size", "-a measures all sizes: leave it out, or leave out -s"},
	{"all", "range", "-a measures all sizes: leave it out, or leave out -m"},
	{"size", "range", "-s names sizes, -m a range of them: leave one of them out"},
}

// misplaced refuses flags that the way a command runs, or another flag, would leave unheard: whoever asks for loss and
// gets none would take the figures for something they are not.
func misplaced(kctx *kong.Context) error {
	given := map[string]bool{}
	var names []string
	for _, p := range kctx.Path {
		if p.Flag != nil && !given[p.Flag.Name] {
			given[p.Flag.Name] = true
			names = append(names, p.Flag.Name)
		}
	}
	for _, c := range clashes {
		if given[c.one] && given[c.other] {
			return errors.New(c.text)
		}
	}
	choice := map[string]bool{} // what the command could be given
	for _, f := range kctx.Flags() {
		choice[f.Name] = true
	}
	for _, name := range names {
		here := name == "link" || name == "name" || name == "key-file" || name == "peers-file" // see localFlags
		switch {
		// without: the command knows nothing but labs
		case strings.HasPrefix(name, "lab-") && !given["lab"] && choice["socket"]:
			return fmt.Errorf("--%s describes hosts that --lab makes: add --lab, or leave it out", name)
		case (here || name == "socket") && given["lab"]:
			return fmt.Errorf("--%s is of this host, and --lab makes its own: leave one of them out", name)
		case here && !given["embedded"]:
			return fmt.Errorf("--%s goes with --embedded alone: a daemon has its own, see edged's configuration", name)
		}
	}
	return nil
}
