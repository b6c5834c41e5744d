package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// Count is a number of things on the command line, of which there is one at least.
type Count int

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Count) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if *c = Count(n); err != nil || n < 1 {
		return fmt.Errorf("%q: want a whole number, 1 at least", text)
	}
	return nil
}

// Size is a number of bytes on the command line. It must lie in memory.
type Size int

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := report.ParseBytes(string(text))
	if m := report.MachineMemory(); err == nil && m > 0 && n > m {
		err = fmt.Errorf("size %q is too large for this machine's memory of %s", text, report.Bytes(m))
	}
	*s = Size(n)
	return err
}

// Region is how much memory is registered.
type Region Size

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Region) UnmarshalText(text []byte) error {
	err := (*Size)(r).UnmarshalText(text)
	if err == nil && *r == 0 {
		err = fmt.Errorf("region %q: want more than nothing", text)
	}
	return err
}

// Seconds is a duration on the command line: a number is seconds, as in perftest; 500ms and the like work, too.
type Seconds time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Seconds) UnmarshalText(text []byte) error {
	if v, err := strconv.ParseFloat(string(text), 64); err == nil {
		*s = Seconds(v * float64(time.Second))
	} else if d, err := time.ParseDuration(string(text)); err == nil {
		*s = Seconds(d)
	} else {
		return fmt.Errorf("%q: want seconds, such as 3 or 0.5, or a duration such as 500ms", text)
	}
	if *s <= 0 {
		return fmt.Errorf("%q: want more than nothing", text)
	}
	return nil
}

// Ints are numbers of the command line as numbers.
func Ints[T ~int](list []T) (n []int) {
	for _, v := range list {
		n = append(n, int(v))
	}
	return n
}

// TransportFlags set the transport up.
type TransportFlags struct {
	Scheduler string `help:"How frames are spread over links: ${schedulers} (default: the daemon's)." placeholder:"NAME"`
	Security  string `enum:"encrypted,plaintext," default:"" help:"encrypted or plaintext (default: encrypted). Only with --lab or --embedded; a daemon has its own." placeholder:"WHAT"`
	Checksum  string `enum:"full,header," default:"" help:"What CRC32C covers in plaintext: full or header. Only with --lab or --embedded." placeholder:"WHAT"`
	Profile   string `help:"Flow control: default or paper. Only with --lab or --embedded." placeholder:"NAME"`
	Poll      string `enum:"adaptive,block,busy," default:"" help:"How processes wait: adaptive, block or busy (default: adaptive; a daemon has its own)." placeholder:"MODE"`
	Driver    string `enum:"alone,ring,mmsg,udp," default:"" help:"How links move frames: udp (super-frames, GSO and GRO), alone, ring or mmsg (default: udp on veth, but alone with --lab-rates, which stand for NICs). Only with --lab or --embedded." placeholder:"NAME"`
	Embedded  bool   `help:"Run the transport inside the benchmark processes, without daemons."`
}

// LabFlags describe hosts on this machine.
type LabFlags struct {
	Lab          bool      `help:"Build the hosts on this machine, run both ends, remove everything. Needs no root where user namespaces are allowed."`
	LabHosts     Count     `default:"2" help:"Hosts; the first two run the benchmark (default: ${default})." placeholder:"N"`
	LabLinks     int       `default:"0" help:"Links between the hosts (default: as many as --lab-rates, or 1)." placeholder:"K"`
	LabMTU       Count     `name:"lab-mtu" default:"9000" help:"MTU of the links (default: ${default})." placeholder:"M"`
	LabRouter    bool      `help:"Put a router between the hosts, which passes IP alone: links are IP links."`
	LabFamily    string    `enum:"4,6" default:"4" help:"IP of --lab-router: 4 or 6 (default: ${default})." placeholder:"V"`
	LabPaths     Count     `default:"1" help:"Equal paths between the routers of --lab-router, of which flows take one each (default: ${default})." placeholder:"N"`
	LabLanes     Count     `default:"1" help:"Lanes of each IP link of --lab-router (default: ${default})." placeholder:"N"`
	LabRates     []string  `help:"Rates of the links, such as 10gbit,1gbit; one for all or one for each." placeholder:"RATE"`
	LabWeights   []float64 `help:"Weights of links for wsrr and wd (default: their rates)." placeholder:"W"`
	LabLoss      float64   `help:"Share of frames that the wires lose, 0 to 1." placeholder:"P"`
	LabDup       float64   `help:"Share of frames delivered twice." placeholder:"P"`
	LabCorrupt   float64   `help:"Share of frames with a bit flipped." placeholder:"P"`
	LabReorder   float64   `help:"Share of frames held back by a millisecond." placeholder:"P"`
	LabPin       bool      `default:"true" negatable:"" help:"Give each host its own processors."`
	LabShards    Count     `default:"1" help:"Threads that serve the links of each daemon (default: ${default})." placeholder:"N"`
	LabReceivers int       `help:"Receivers of each shard: further threads that receive." placeholder:"N"`
	LabLog       string    `help:"Level of the daemons' log: debug, info, warn or error." placeholder:"LEVEL"`
}

// Cluster returns the hosts the flags describe.
func (f *LabFlags) Cluster(t *TransportFlags, seed uint64) kit.ClusterSpec {
	links := f.LabLinks
	if links == 0 {
		links = max(1, len(f.LabRates))
	}
	medium := lab.Auto
	if f.LabRouter {
		medium = lab.Routed
	}
	return kit.ClusterSpec{
		Lab: lab.Spec{
			Hosts: int(f.LabHosts), Links: links, MTU: int(f.LabMTU), Rates: f.LabRates, Seed: seed, Medium: medium,
			IPv6: f.LabRouter && f.LabFamily == "6", Paths: int(f.LabPaths),
			Faults: lab.Faults{Loss: f.LabLoss, Dup: f.LabDup, Corrupt: f.LabCorrupt, Reorder: f.LabReorder},
		},
		Scheduler: t.Scheduler, Security: t.Security, Checksum: t.Checksum, Profile: t.Profile, Poll: t.Poll,
		Driver: t.Driver, Lanes: int(f.LabLanes), Weights: f.LabWeights,
		Embedded: t.Embedded, Pin: f.LabPin, Shards: int(f.LabShards),
		Receivers: f.LabReceivers, Log: f.LabLog,
	}
}

// clashes are pairs of flags that choose the same, of which one would go unheard.
var clashes = []struct{ one, other, text string }{
	{"iters", "duration", "-n ends after so many messages, -D after so much time: leave out -D for the one, -n for " +
		"the other"},
	{"all", "size", "-a measures all sizes: leave it out, or leave out -s"},
	{"all", "range", "-a measures all sizes: leave it out, or leave out -m"},
	{"lab-router", "embedded", "links through a router are those of daemons: leave --embedded out"},
	{"lab-router", "driver", "links through a router have the driver ip: leave --driver out"},
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
		// as localFlags of edgebench have them
		here := name == "link" || name == "name" || name == "key-file" || name == "peers-file"
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
