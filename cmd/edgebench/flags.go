package main

import (
	"fmt"
	"strings"
	"time"

	"multiedge/bench"
	"multiedge/bench/cli"
	"multiedge/bench/workload"
	"multiedge/edge"
	"multiedge/internal/config"
)

type (
	count          = cli.Count
	size           = cli.Size
	region         = cli.Region
	seconds        = cli.Seconds
	transportFlags = cli.TransportFlags
)

// labFlags describe hosts on this machine.
type labFlags struct{ cli.LabFlags }

func (f *labFlags) cluster(t *transportFlags, seed uint64) bench.ClusterSpec {
	return f.Cluster(t, seed)
}

// labRunFlags are common to the commands that compare set-ups of hosts on this machine.
type labRunFlags struct {
	workFlags
	transportFlags
	labFlags    `prefix:""`
	outputFlags `prefix:""`
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
	return cli.Ints(f.Size)
}

// workFlags say how much of a test to do.
type workFlags struct {
	Iters     count   `short:"n" help:"Messages for each size, from each sender, instead of -D." placeholder:"ITER"`
	Duration  seconds `short:"D" help:"Seconds for each size (default: 1)." placeholder:"SECONDS"`
	WarmUp    seconds `name:"warm-up" help:"Seconds of the same work that do not count, before the first size (default: a quarter of -D, 0.2 at most). Where a virtual machine maps each page at its first use, let it pass the whole region." placeholder:"SECONDS"`
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
	return bench.Plan{Sizes: s.sizes(), Spec: workload.Spec{Test: test, Count: uint64(w.Iters),
		Duration: time.Duration(w.Duration), Warmup: time.Duration(w.WarmUp), Depth: int(w.Depth),
		Batch: int(w.Batch), Integrity: w.Integrity, Seed: w.Seed, Region: int(w.Region)}}
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
