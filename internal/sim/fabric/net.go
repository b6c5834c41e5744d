package fabric

import (
	"fmt"
	"math"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/mono"
)

// Options fix a network, its hosts and their connections.
type Options struct {
	Hosts   int
	PerLeaf int // hosts of each leaf switch
	Spines  int // each has a link to every leaf
	// bits per second of a host's link; the links between switches have what makes the network carry everything that
	// hosts send (no oversubscription)
	Rate        float64
	HostDelay   time.Duration // of a cable to a host
	SwitchDelay time.Duration // of a cable between switches
	MTU         int           // of all links

	Buffer int  // bytes that each port of a switch has for its queue
	Shared bool // the ports of a switch share the sum of that (dynamic thresholds)
	Mark   int  // packets are marked that find so many bytes queued before them; 0: none is
	Fails  []Outage

	Seed     uint64
	Channels []Channel
	Done     func(f *Flow)   // is called once a Flow has arrived; it may start others
	Model    bool            // hosts run the model of DCTCP, not the engine
	Lanes    int             // links of each host, over its one NIC; of engines alone
	Profile  flowctl.Profile // of engines
	Verify   bool            // each Flow has memory of its own, whose bytes are compared
}

// Channel is a connection on which flows go one way.
type Channel struct{ From, To int }

// Outage is a link between switches that carries nothing for a while, of which no switch takes notice. Times count from
// the first moment after Open.
type Outage struct {
	Leaf, Spine int
	From, Until time.Duration
}

// Check says what is wrong with o.
func (o *Options) Check() error {
	switch {
	case o.Hosts < 2 || o.Hosts > 1<<14 || o.PerLeaf < 1 || o.Spines < 1:
		return fmt.Errorf("fabric: %d hosts, %d of each leaf, %d spines: want 2 to %d hosts, and 1 at least of the "+
			"others", o.Hosts, o.PerLeaf, o.Spines, 1<<14)
	case !(o.Rate >= 1e6 && o.Rate <= 1e13):
		return fmt.Errorf("fabric: links of %g bit/s: want 1e6 to 1e13", o.Rate)
	case o.MTU < 1280 || o.MTU > 9216:
		return fmt.Errorf("fabric: an MTU of %d: want 1280 to 9216", o.MTU)
	case o.Buffer < 2*o.MTU:
		return fmt.Errorf("fabric: buffers of %d bytes: want those of two packets at least", o.Buffer)
	case o.Lanes < 1 || o.Lanes > 64:
		return fmt.Errorf("fabric: %d lanes: want 1 to 64", o.Lanes)
	}
	for _, c := range o.Channels {
		if c.From == c.To || min(c.From, c.To) < 0 || max(c.From, c.To) >= o.Hosts {
			return fmt.Errorf("fabric: a channel from host %d to %d, of %d", c.From, c.To, o.Hosts)
		}
	}
	for _, f := range o.Fails {
		if min(f.Leaf, f.Spine) < 0 || f.Leaf >= o.leaves() || f.Spine >= o.Spines {
			return fmt.Errorf("fabric: no link between leaf %d and spine %d", f.Leaf, f.Spine)
		}
	}
	return nil
}

func (o *Options) leaves() int { return (o.Hosts + o.PerLeaf - 1) / o.PerLeaf }

// Tally counts packets. Sent is the sum of Received, Dropped, Cut and those on their way.
type Tally struct {
	Sent, Received uint64 // by hosts
	Dropped        uint64 // there was no room for them in a switch
	Cut            uint64 // on links that had failed
	Marked         uint64
	Again          uint64 // that carry something sent before
	Payload        uint64 // bytes that arrived, each once
	Events         uint64 // of the simulator
}

// Since returns what was counted after an earlier moment.
func (t *Tally) Since(o *Tally) Tally {
	return Tally{t.Sent - o.Sent, t.Received - o.Received, t.Dropped - o.Dropped, t.Cut - o.Cut, t.Marked - o.Marked,
		t.Again - o.Again, t.Payload - o.Payload, t.Events - o.Events}
}

// Net is a network with its hosts. Not safe for concurrent use.
type Net struct {
	Now   mono.Time
	Flows []*Flow // that were started, by number

	opt      Options
	tally    Tally
	agenda   agenda
	ports    []port
	switches []buffers // leaves, then spines
	hosts    []host
	free     *packet
	fresh    int // packets that were made
	funcs    []func()
	engines  *engines                  // nil: the model runs
	model    *model                    // nil: engines run
	flaw     error                     // the first thing that went wrong
	watch    func(at int32, p *packet) // of tests: sees each packet that enters the queue of a port
}

// host is the transport of a host.
type host interface {
	receive(p *packet) // takes p, but not its memory
	wake()             // the time is here that alarm was told
	room()             // the NIC has room again
	begin(f *Flow)
	counts(t *Tally) // adds Again and Payload
}

// packet is what travels. It is in one queue at most.
type packet struct {
	next     *packet
	arrives  mono.Time // of one on a cable
	size     int       // bytes that it takes of a link, with what is around the frame
	from, to int32     // hosts
	fromPort uint16    // UDP ports, of engines
	toPort   uint16
	capable  bool // it may be marked
	marked   bool
	hash     uint64 // of its flow
	frame    []byte // of engines
	seg      segment
}

// New makes a network whose hosts have not spoken yet.
func New(o Options) (*Net, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	n := &Net{Now: mono.Time(time.Second), opt: o}
	n.wire()
	if o.Model {
		n.model = newModel(n)
	} else {
		e, err := newEngines(n)
		if err != nil {
			return nil, err
		}
		n.engines = e
	}
	return n, nil
}

// Tally returns what was counted so far.
func (n *Net) Tally() Tally {
	t := n.tally
	for _, h := range n.hosts {
		h.counts(&t)
	}
	return t
}

// Flying counts the packets on their way.
func (n *Net) Flying() (k uint64) {
	for i := range n.ports {
		k += n.ports[i].queue.len() + n.ports[i].cable.len()
	}
	return k
}

// After calls f later.
func (n *Net) After(d time.Duration, f func()) {
	n.funcs = append(n.funcs, f)
	n.agenda.add(n.Now.Add(d), calls, int32(len(n.funcs)-1))
}

// fault remembers the first thing that is wrong; Run returns it.
func (n *Net) fault(format string, args ...any) {
	if n.flaw == nil {
		n.flaw = fmt.Errorf("fabric: "+format, args...)
	}
}

// Run lets everything happen until done says so, at most until a time. It reports whether done said so.
func (n *Net) Run(until mono.Time, done func() bool) (bool, error) {
	for !done() {
		e, ok := n.agenda.take(until)
		if !ok {
			n.Now = until
			return false, n.flaw
		}
		n.step(&e)
		if n.flaw != nil {
			return false, n.flaw
		}
	}
	return true, n.flaw
}

// step makes an event happen.
func (n *Net) step(e *event) {
	n.Now = e.at
	n.tally.Events++
	switch e.kind {
	case departs:
		n.departed(e.what)
	case arrives:
		n.arrived(e.what)
	case wakes:
		n.hosts[e.what].wake()
	case expires:
		n.model.expired(e.what)
	case calls:
		f := n.funcs[e.what]
		n.funcs[e.what] = nil
		f()
	}
}

// Close ends the engines; the Net is not used any more.
func (n *Net) Close() {
	if n.engines != nil {
		n.engines.stop()
	}
}

// packet returns one that is all zero but for the memory of its frame.
func (n *Net) packet() *packet {
	p := n.free
	if p == nil {
		n.fresh++
		return &packet{}
	}
	n.free = p.next
	*p = packet{frame: p.frame[:0]}
	return p
}

func (n *Net) release(p *packet) {
	p.next = n.free
	n.free = p
}

// never is a time that does not come.
const never = mono.Time(math.MaxInt64)

// scatter is the finisher of splitmix64: a bijection that spreads neighbouring values.
func scatter(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// flowHash is what switches choose paths by: the addresses and ports of a packet.
func (n *Net) flowHash(from, to int32, fromPort, toPort uint64) uint64 {
	return scatter(scatter(n.opt.Seed^uint64(from)<<32^uint64(to)) ^ fromPort<<32 ^ toPort)
}
