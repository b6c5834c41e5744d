package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/pattern"
	"multiedge/bench/report"
	"multiedge/edge"
)

// Service is the name servers offer and clients dial, unless told otherwise.
const Service = "edgebench"

// protocol is the version of the messages between client and server.
const protocol = 4

// Params is the private data of a dial: what the series needs. It must stay below 512 bytes of JSON.
type Params struct {
	Protocol int  `json:"protocol"`
	Region   int  `json:"region"` // bytes the client registered for each of its data regions
	Source   bool `json:"source"` // the server needs memory to send or be read from
	Target   bool `json:"target"` // the server needs memory that is written
	Heap     bool `json:"heap,omitempty"`

	Conns int `json:"conns,omitempty"` // connections of the series, this one included; 0: 1
	// the series's number, chosen by the client, if it has several connections
	Series uint64 `json:"series,omitempty"`
	Joins  bool   `json:"joins,omitempty"` // a further connection of a series that was begun
}

// answer is the private data of the server's acceptance.
type answer struct {
	Region int    `json:"region"`
	Note   string `json:"note,omitempty"`
}

func (p *Params) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

func parseParams(data []byte) (p Params, err error) {
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("the request's parameters are not edgebench's: %v", err)
	}
	if p.Protocol != protocol {
		return p, fmt.Errorf("client speaks version %d of the benchmark, this server version %d: use the same "+
			"edgebench on both hosts", p.Protocol, protocol)
	}
	if p.Conns < 0 || p.Conns > MaxConns {
		return p, fmt.Errorf("%d connections were asked for: at most %d are possible", p.Conns, MaxConns)
	}
	if p.Region < minRegion || p.Region > maxRegion {
		return p, fmt.Errorf("regions of %d bytes were asked for: between %d and %d are possible", p.Region, minRegion,
			maxRegion)
	}
	return p, nil
}

// Limits of data regions in bytes.
const (
	minRegion = 64 << 10
	maxRegion = 16 << 30
)

// MaxConns is the largest number of connections of a series. Each exports up to two regions, of which a daemon allows
// 16,384 by default.
const MaxConns = 8000

// Spec is one measurement. The client sends it to the server.
type Spec struct {
	Test          string        `json:"test"`
	Size          int           `json:"size"`               // bytes of a message
	Count         uint64        `json:"count,omitempty"`    // messages from each sender; 0: Duration decides
	Duration      time.Duration `json:"duration,omitempty"` // how long senders send
	Warmup        time.Duration `json:"-"`                  // before what counts; 0: as bench.Warmup says
	Depth         int           `json:"depth"`              // operations in flight from each sender
	Batch         int           `json:"batch"`              // operations posted at once
	Conns         int           `json:"conns,omitempty"`    // connections that share the operations; 0: 1
	Integrity     bool          `json:"integrity"`
	Bidirectional bool          `json:"bidirectional,omitempty"` // the server sends or reads as well
	// messages are bytes of streams, one for each direction; only one-way, two-way and ping-pong
	ByteStream bool   `json:"byte_stream,omitempty"`
	Registered bool   `json:"registered,omitempty"` // what streams write and read is registered; with Copied, copied
	Seed       uint64 `json:"seed"`                 // of message contents
	Region     int    `json:"region"`               // bytes of the data regions to use, at both ends
	// of destinations, a name in pattern.Alignments; sources lie on pages then. Empty: cache lines
	Align string `json:"align,omitempty"`

	Compare bool `json:"compare,omitempty"` // atomics are compare-and-swaps that fail, not additions
	// a written message lies in so many pieces, at places far from each other; with Copied the sender copies them to
	// one place first. 0: it lies in one
	Pieces int  `json:"pieces,omitempty"`
	Copied bool `json:"copied,omitempty"`
	Heap   bool `json:"heap,omitempty"` // data regions are memory of the process that is granted where it is
}

// Tests are the names Spec.Test can have.
var Tests = []string{report.OneWay, report.TwoWay, report.PingPong, report.Read, report.Rate, report.Atomic,
	report.SendLatency, report.SendRate}

// check returns what is wrong with s, in words for the user.
func (s *Spec) check() error {
	switch {
	case !slices.Contains(Tests, s.Test):
		return fmt.Errorf("test %q: want one of %v", s.Test, Tests)
	case s.Size < 0 || s.Size > maxRegion/4:
		return fmt.Errorf("message size %d: want 0 to %s", s.Size, report.Bytes(maxRegion/4))
	case s.Count == 0 && s.Duration <= 0:
		return fmt.Errorf("neither a number of messages nor a duration")
	case s.Depth < 1 || s.Depth > 1<<16:
		return fmt.Errorf("queue depth %d: want 1 to %d", s.Depth, 1<<16)
	case s.Align != "" && !slices.Contains(pattern.Alignments, s.Align):
		return fmt.Errorf("alignment %q: want one of %v", s.Align, pattern.Alignments)
	case s.Conns < 0 || s.Conns > MaxConns:
		return fmt.Errorf("%d connections: want 1 to %d", s.Conns, MaxConns)
	case s.Conns > 1 && s.Test == report.PingPong:
		return fmt.Errorf("ping-pong uses one connection, not %d: it has one message under way", s.Conns)
	case s.Test == report.Atomic && (s.Size != 4 && s.Size != 8 || s.Integrity):
		return fmt.Errorf("atomics of %d bytes: want 4 or 8, without --integrity", s.Size)
	case s.Pieces != 0 && (s.Pieces < 0 || s.Pieces > edge.MaxPieces || s.Size%s.Pieces != 0 || s.Integrity ||
		s.Test != report.OneWay && s.Test != report.TwoWay && s.Test != report.Rate):
		return fmt.Errorf("%d pieces of %d bytes: want writes in 1 to %d equal pieces, without --integrity", s.Pieces,
			s.Size, edge.MaxPieces)
	case (s.Test == report.SendLatency || s.Test == report.SendRate) && (s.conns() > 1 || s.Integrity ||
		s.Bidirectional):
		return fmt.Errorf("messages are measured on one connection, in one direction, and not checked")
	case s.ByteStream && (s.Test != report.OneWay && s.Test != report.TwoWay &&
		s.Test != report.PingPong || s.Bidirectional || s.conns() > 1):
		return fmt.Errorf("byte streams do %s, %s and %s, on one stream for each direction", report.OneWay,
			report.TwoWay, report.PingPong)
	case s.ByteStream && (s.Size == 0 || s.Count > 0 || s.Integrity):
		return fmt.Errorf("byte streams are measured for a duration, with messages that are not empty and not checked")
	case s.Registered && !s.ByteStream:
		return fmt.Errorf("registered memory is a choice of byte streams alone")
	case s.Heap && (s.Test == report.Atomic || s.Test == report.SendLatency || s.Test == report.SendRate ||
		s.Pieces > 0 || s.ByteStream):
		return fmt.Errorf("memory that is granted where it is serves writes and reads of one piece")
	case s.Batch < 1 || s.Batch > s.Depth:
		return fmt.Errorf("batch of %d operations: want 1 to the queue depth, %d", s.Batch, s.Depth)
	}
	return nil
}

// clientSends, serverSends: who initiates operations.
func (s *Spec) serverSends() bool {
	return s.Test == report.TwoWay || s.Bidirectional
}

// conns is how many connections s uses.
func (s *Spec) conns() int { return max(s.Conns, 1) }

// mostConns is how many connections a series needs for all of specs.
func mostConns(specs []Spec) int {
	n := 1
	for i := range specs {
		n = max(n, specs[i].Conns)
	}
	return n
}

// needs returns which data regions each end uses over all of specs.
func needs(specs []Spec) (client, server memory) {
	for i := range specs {
		s := &specs[i]
		client.heap, server.heap = client.heap || s.Heap, server.heap || s.Heap
		if s.ByteStream && !s.Registered {
			continue
		}
		both := s.serverSends() || s.Test == report.PingPong || s.Test == report.SendLatency
		if s.Test == report.Read {
			client.target, server.source = true, true
			client.source, server.target = client.source || both, server.target || both
			continue
		}
		client.source, server.target = true, true
		client.target, server.source = client.target || both, server.source || both
	}
	return client, server
}

// memory says which data regions an end has, and whether they are heap grants.
type memory struct{ source, target, heap bool }

// Report is what the server found in one measurement.
type Report struct {
	Error   string  `json:"error,omitempty"` // it failed, and the series is over
	Sent    uint64  `json:"sent"`            // operations initiated by the server
	Seconds float64 `json:"seconds"`
	Counted
	Integrity Integrity         `json:"integrity"`
	Links     []report.LinkLoad `json:"links,omitempty"`
	Notes     []string          `json:"notes,omitempty"`
}

// Integrity is what a receiver found wrong.
type Integrity struct {
	Errors  uint64   `json:"errors"`
	Details []string `json:"details,omitempty"`
}

func (i *Integrity) add(o Integrity) {
	i.Errors += o.Errors
	i.Details = append(i.Details, o.Details...)
}
