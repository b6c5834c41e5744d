package fabric

import (
	"math/rand/v2"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/sim/fabric"
)

// Spec is a network and its traffic.
type Spec struct {
	Hosts    int           `json:"hosts"`
	Workload string        `json:"workload"` // one of Workloads
	Load     float64       `json:"load"`     // of hosts' links, by payload; of mixed traffic
	Lanes    int           `json:"lanes"`    // of a run with several; 1: there is none
	FanIn    int           `json:"fan_in"`   // senders of incast
	Time     time.Duration `json:"time_ns"`  // for so long flows start
	Rate     float64       `json:"rate"`     // bits per second of hosts' links
	MTU      int           `json:"mtu"`
	Buffer   int           `json:"buffer"` // bytes for each port of a switch
	Shared   bool          `json:"shared"`
	Mark     int           `json:"mark"`  // bytes
	Fails    int           `json:"fails"` // links between switches that fail for the middle third of Time
	Seed     uint64        `json:"seed"`
}

const (
	permutation = "permutation"
	incast      = "incast"
)

// Workloads are the names of all traffic.
func Workloads() (names []string) {
	for _, s := range distributions {
		names = append(names, s.name)
	}
	return append(names, permutation, incast)
}

// Sizes of messages. That of incast is what one request of DCTCP's section 4.2.1 asks of all senders together.
const (
	permuted = 1_000_000
	incasted = 1_000_000
)

// arrival is a flow that starts at its time on channel number i, if it is the i-th.
type arrival struct {
	at   time.Duration
	size int
}

// traffic is what hosts send. Mixed traffic has a connection for each flow, which starts at its time. Otherwise each
// connection has a message at a time, and the next after it: in permutation at once, in incast when all have arrived.
type traffic struct {
	channels []fabric.Channel
	arrivals []arrival // of mixed traffic
	message  int       // bytes; of others
	together bool
}

// draw returns the traffic of a spec.
func (s *Spec) draw() (t traffic) {
	dice := rand.New(rand.NewPCG(s.Seed, 1))
	switch s.Workload {
	case permutation:
		order := dice.Perm(s.Hosts)
		for i, from := range order { // one cycle: nobody sends to himself
			t.channels = append(t.channels, fabric.Channel{From: from, To: order[(i+1)%len(order)]})
		}
		t.message = permuted
	case incast:
		for i := range s.FanIn {
			t.channels = append(t.channels, fabric.Channel{From: i + 1, To: 0})
		}
		t.message, t.together = incasted/s.FanIn, true
	default:
		d := distribution(s.Workload)
		every := d.mean() * 8 / (s.Load * s.Rate * float64(s.Hosts)) // seconds
		for at := 0.0; ; {
			at += dice.ExpFloat64() * every
			if at >= s.Time.Seconds() {
				break
			}
			from := dice.IntN(s.Hosts)
			to := (from + 1 + dice.IntN(s.Hosts-1)) % s.Hosts
			t.channels = append(t.channels, fabric.Channel{From: from, To: to})
			t.arrivals = append(t.arrivals, arrival{time.Duration(at * 1e9), d.draw(dice)})
		}
		if len(t.arrivals) == 0 {
			kit.Fail("no flow starts within %v: choose a longer time or a higher load", s.Time)
		}
	}
	return t
}

// What hosts and their links are, besides a Spec: those of pFabric's simulations, whose hosts take more time.
const (
	perLeaf     = 16
	spines      = 4
	hostDelay   = 2 * time.Microsecond
	switchDelay = 500 * time.Nanosecond
)

// options are those of the simulator.
func (s *Spec) options(channels []fabric.Channel) fabric.Options {
	o := fabric.Options{Hosts: s.Hosts, PerLeaf: min(perLeaf, max(1, s.Hosts/2)), Spines: spines, Rate: s.Rate,
		HostDelay: hostDelay, SwitchDelay: switchDelay, MTU: s.MTU, Buffer: s.Buffer, Shared: s.Shared, Mark: s.Mark,
		Seed: s.Seed, Channels: channels, Lanes: 1}
	leaves := (s.Hosts + o.PerLeaf - 1) / o.PerLeaf
	dice := rand.New(rand.NewPCG(s.Seed, 2))
	for _, link := range dice.Perm(leaves * spines)[:min(s.Fails, leaves*spines)] {
		o.Fails = append(o.Fails, fabric.Outage{Leaf: link / spines, Spine: link % spines, From: s.Time / 3,
			Until: 2 * s.Time / 3})
	}
	return o
}

// Check says what is wrong with a spec.
func (s *Spec) Check() error {
	return kit.Try(func() {
		switch {
		case s.Hosts < 4 || s.Hosts > 4096:
			kit.Fail("%d hosts: choose 4 to 4096", s.Hosts)
		case s.Time < 100*time.Microsecond || s.Time > 10*time.Second:
			kit.Fail("%v of traffic: choose 100us to 10s", s.Time)
		case !(s.Load > 0 && s.Load <= 1):
			kit.Fail("a load of %v: choose more than 0, 1 at most", s.Load)
		case s.Workload == incast && (s.FanIn < 1 || s.FanIn >= s.Hosts):
			kit.Fail("incast from %d hosts: choose 1 to %d, one less than there are", s.FanIn, s.Hosts-1)
		case s.Lanes < 1 || s.Lanes > 16:
			kit.Fail("%d lanes: choose 1 to 16", s.Lanes)
		case s.Fails < 0:
			kit.Fail("%d links that fail: choose 0 or more", s.Fails)
		}
		t := s.draw()
		o := s.options(t.channels)
		kit.Check(o.Check())
		if need := memory(t.channels, s.Lanes); need > mostMemory {
			kit.Fail("%d sessions of %d lanes need about %d GiB, more than %d: choose fewer hosts, lanes, or less time",
				sessions(t.channels), s.Lanes, need>>30, mostMemory>>30)
		}
	})
}

// mostMemory is what a run may take, in bytes; lane and session are about what one end of each takes.
const (
	mostMemory   = 6 << 30
	laneBytes    = 150 << 10
	sessionBytes = 60 << 10
)

func sessions(channels []fabric.Channel) int {
	seen := map[fabric.Channel]bool{}
	for _, c := range channels {
		seen[fabric.Channel{From: min(c.From, c.To), To: max(c.From, c.To)}] = true
	}
	return len(seen)
}

func memory(channels []fabric.Channel, lanes int) int {
	return 2 * sessions(channels) * (lanes*laneBytes + sessionBytes)
}
