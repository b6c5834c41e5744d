package report

import (
	"time"
)

// Format and Version identify result files. Version changes when a field changes its meaning or goes away.
const (
	Format  = "edgebench"
	Version = 1
)

// Head says where results come from.
type Head struct {
	Created time.Time `json:"created"`
	Command []string  `json:"command,omitempty"`
	Machine Machine   `json:"machine"`
	Build   Build     `json:"build,omitzero"`
	Lab     *Lab      `json:"lab,omitempty"` // nil: two real hosts
	Notes   []string  `json:"notes,omitempty"`
}

// Build says of which sources the program that measured was made.
type Build struct {
	Version string `json:"version"`          // as edgebench --version prints it
	Commit  string `json:"commit,omitempty"` // whole; empty if the build does not know it
}

// File is a whole result file.
type File struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Head
	Results []Row    `json:"results"`
	Busy    []string `json:"busy,omitempty"` // what disturbed the figures, in words
}

// NewFile returns an empty result file of the current version.
func NewFile(h Head) *File { return &File{Format: Format, Version: Version, Head: h} }

// Lab describes hosts that were built on this machine for the run.
type Lab struct {
	Hosts        int      `json:"hosts"`
	Links        int      `json:"links"`
	MTU          int      `json:"mtu"`
	Rates        []string `json:"rates,omitempty"` // of each link; empty: not limited
	Loss         float64  `json:"loss,omitempty"`  // probability that a wire drops a frame
	Duplicate    float64  `json:"duplicate,omitempty"`
	Corrupt      float64  `json:"corrupt,omitempty"`
	Reorder      float64  `json:"reorder,omitempty"`
	Unprivileged bool     `json:"unprivileged"`
}

// Names of tests, as the paper and the command line call them.
const (
	OneWay   = "one-way"
	TwoWay   = "two-way"
	PingPong = "ping-pong"
	Read     = "read"
	Rate     = "rate"
	Atomic   = "atomic"

	SendLatency = "send-latency"
	SendRate    = "send-rate"
	Place       = "place" // a run of pages to its place, by copying or by exchanging; no transport
	// every word of new memory is written once, and once again; no transport. Before every other test that is done
	FirstTouch = "first-touch"
)

// Transports a row can have been measured over.
const (
	TransportEdge      = "edge"
	TransportRaw       = "raw"
	TransportTCP       = "tcp"
	TransportUCX       = "ucx"
	TransportLibfabric = "libfabric"
	TransportIperf3    = "iperf3"
	TransportTLS       = "tls"    // TLS 1.3 over TCP, by Go's crypto/tls
	TransportKTLS      = "ktls"   // TLS 1.3 over TCP, by the kernel
	TransportMemory    = "memory" // none: what moving bytes within a process costs
)

// What a row's latency_ns measures.
const (
	LatencyHalfRTT = "half_round_trip" // half of the time from posting a ping to having its pong
	// from posting an operation to its completion, with queue_depth of them in flight
	LatencyCompletion = "completion"
	LatencyCall       = "call" // the time one placing of a run takes
)

// Row is one measurement.
type Row struct {
	Test         string `json:"test"`
	Transport    string `json:"transport"`
	MessageBytes int    `json:"message_bytes"`
	// operations in flight from each sender, on all its connections together
	QueueDepth  int `json:"queue_depth"`
	RegionBytes int `json:"region_bytes"`
	Links       int `json:"links"`
	MTU         int `json:"mtu"`
	Setup

	Operations uint64  `json:"operations"`
	Bytes      uint64  `json:"bytes"` // of payload, both directions together
	Seconds    float64 `json:"seconds"`
	Throughput float64 `json:"throughput_bytes_per_second"`
	// from the client, from the server; Throughput is their sum
	EachWay             []float64 `json:"throughput_each_way_bytes_per_second,omitempty"`
	PeakThroughput      float64   `json:"throughput_peak_bytes_per_second,omitempty"`
	OperationsPerSecond float64   `json:"operations_per_second"`

	LatencyKind string  `json:"latency_kind,omitempty"`
	Latency     Latency `json:"latency_ns"`
	// the time an initiating call takes; the paper's latency of one-way and two-way
	Post Latency `json:"post_ns,omitzero"`

	CPU CPU `json:"cpu_seconds"`
	// calls, switches and wake-ups; nil: not counted
	Efforts *Efforts `json:"efforts,omitempty"`
	Disturbance

	Counters            // of both ends together
	Client   *Counters  `json:"client,omitempty"`
	Server   *Counters  `json:"server,omitempty"`
	Dropped  uint64     `json:"frames_dropped_by_kernel"`
	Paths    []LinkLoad `json:"link_load,omitempty"` // how the client's frames were spread

	// what each thread that serves links did, where shards are compared
	ShardLoad []ShardLoad `json:"shard_load,omitempty"`

	Integrity
	// the measurement failed; the figures are of what was done until then
	Error string   `json:"error,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Setup is how a transport was set up for a measurement.
type Setup struct {
	Attach string `json:"attach,omitempty"` // "daemon" or "embedded"; edge only
	Round  int    `json:"round,omitempty"`  // of an interleaved comparison, from 1
	// of a comparison: how the transport was set up, when there is more than one way
	Variant       string   `json:"variant,omitempty"`
	Bidirectional bool     `json:"bidirectional,omitempty"`
	Connections   int      `json:"connections,omitempty"` // that share the operations; edge only
	Shards        int      `json:"shards,omitempty"`      // of each daemon, where that is what is compared
	Receivers     int      `json:"receivers,omitempty"`   // further threads of each shard
	LinkRates     []string `json:"link_rates,omitempty"`
	Scheduler     string   `json:"scheduler,omitempty"`
	Checksum      string   `json:"checksum,omitempty"` // of plaintext: what CRC32C covers
	Security      string   `json:"security,omitempty"` // "encrypted" or "plaintext"
	Poll          string   `json:"poll,omitempty"`
	Driver        string   `json:"driver,omitempty"`                 // of links; edge only
	Copy          string   `json:"copy,omitempty"`                   // of a comparison of copies: the name of the configuration
	Alignment     string   `json:"alignment,omitempty"`              // of destinations: best, middle or worst; empty: cache lines
	Congestion    string   `json:"tcp_congestion_control,omitempty"` // that the sockets had; only what runs over TCP
	Cores         string   `json:"cores,omitempty"`                  // CoresPinned or CoresFree; only where both ends are on this machine
	Offloads      string   `json:"offloads,omitempty"`               // of the links: "TSO, GSO", "none"; only of labs
}

// Where the threads of a measurement run.
const (
	CoresPinned = "pinned" // each host's on processors of its own
	CoresFree   = "free"   // where the kernel likes
)

// LinksUsed is how many of the links a measurement used: edge and raw packet sockets use all of them, whatever runs
// over TCP or IP the first.
func (r *Row) LinksUsed() int {
	if r.Transport == TransportEdge || r.Transport == TransportRaw {
		return r.Links
	}
	return min(r.Links, 1)
}

// Disturbance is what the machine did beside a measurement.
type Disturbance struct {
	// OtherCPU is what this machine's processors did beside the measurement, in seconds; only where both ends are on
	// this machine. Much of it means that the figures are disturbed.
	OtherCPU  float64 `json:"cpu_seconds_others,omitempty"`
	StolenCPU float64 `json:"cpu_seconds_stolen,omitempty"` // of OtherCPU: taken by a hypervisor
	// how often the kernel took a processor from the benchmark's processes and daemons
	Switches uint64 `json:"involuntary_switches,omitempty"`
	Busy     string `json:"busy,omitempty"` // why the figures are disturbed; empty: they are not
	// minor page faults of the benchmark's threads and of daemons meanwhile; few, since memory is touched before
	PageFaults uint64 `json:"page_faults,omitempty"`
}

// Integrity is what the comparison of every byte found.
type Integrity struct {
	IntegrityChecked bool     `json:"integrity_checked"`
	IntegrityErrors  uint64   `json:"integrity_errors"`
	IntegrityDetail  []string `json:"integrity_detail,omitempty"` // the first few errors, in words
}

// Counters are what the transport did for one measurement.
type Counters struct {
	FramesSent          uint64 `json:"frames_sent"`
	FramesReceived      uint64 `json:"frames_received"`
	FramesRetransmitted uint64 `json:"frames_retransmitted"`
	FramesDuplicated    uint64 `json:"frames_duplicated"` // received again
	FramesReordered     uint64 `json:"frames_reordered"`
	FramesLost          uint64 `json:"frames_lost"` // judged lost by their sender
	FramesRejected      uint64 `json:"frames_rejected"`
	AcksExplicit        uint64 `json:"acks_explicit"`
	FramesInPlace       uint64 `json:"frames_in_place"`  // whose payload the kernel put where it belongs
	FramesExchanged     uint64 `json:"frames_exchanged"` // whose payload got there by an exchange of pages
	FramesShuffled      uint64 `json:"frames_shuffled"`  // received with the payload's beginning behind the rest
}

// LinkLoad is one link's share of a measurement.
type LinkLoad struct {
	Link                string `json:"link"`
	FramesSent          uint64 `json:"frames_sent"`
	BytesSent           uint64 `json:"bytes_sent"`
	FramesRetransmitted uint64 `json:"frames_retransmitted"`
}

// ShardLoad is one shard's share of a measurement.
type ShardLoad struct {
	Host            string  `json:"host"` // client or server
	Shard           int     `json:"shard"`
	CPU             float64 `json:"cpu_seconds"` // of its thread
	ReceiversCPU    float64 `json:"receivers_cpu_seconds,omitempty"`
	FramesReceived  uint64  `json:"frames_received"`
	PayloadReceived uint64  `json:"payload_bytes_received"`
}

// Threads says how many serve a daemon's links: "1 shard", "2 shards", "1 shard + 1 receiver".
func Threads(shards, receivers int) string {
	s := Plural(max(shards, 1), "shard")
	if receivers > 0 {
		s += " + " + Plural(receivers, "receiver")
	}
	return s
}

// Contender names what a row of a comparison was measured over: the transport and, where it matters, how it was set up.
func (r *Row) Contender() string {
	name := r.Transport
	for _, s := range []string{r.Variant, r.Copy, r.Alignment} {
		if s != "" {
			name += " " + s
		}
	}
	return name
}

// Rated fills in the rates that follow from bytes, operations and seconds, and returns r.
func (r *Row) Rated() *Row {
	if r.Seconds > 0 {
		r.Throughput, r.OperationsPerSecond = float64(r.Bytes)/r.Seconds, float64(r.Operations)/r.Seconds
	}
	return r
}
