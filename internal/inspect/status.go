package inspect

import (
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/hist"
)

// StatusSchema numbers the JSON below. It grows when a field changes its meaning or goes; new fields do not change it.
const StatusSchema = 1

// Counts are counters by name, in snake case. All are totals since the daemon's start.
type Counts map[string]uint64

// Status is the answer to a status request for "status", and what edgectl status -j prints.
type Status struct {
	Schema    int    `json:"schema"`
	Node      string `json:"node"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
	Epoch     string `json:"epoch"` // hexadecimal; differs at each start
	PID       int    `json:"pid"`
	Socket    string `json:"socket,omitempty"`
	Draining  bool   `json:"draining"`
	Process
	Scheduler string `json:"scheduler"`
	Profile   string `json:"profile"`
	Checksum  string `json:"checksum"` // "full" or "header"; empty when encrypted: the seal covers everything
	Protection
	Poll      string `json:"poll"`
	Copy      string `json:"copy,omitempty"` // empty: what is fastest
	EtherType string `json:"ethertype"`
	Totals
	Charges
	Spaces SpacesStatus `json:"spaces"`

	Reload   *ReloadStatus `json:"last_reload,omitempty"` // of the configuration; absent: there was none
	Counters Counts        `json:"counters"`
	// system calls of the packet path that wait and wake; those that carry frames are among the links' kernel counters
	Calls Counts `json:"system_calls"`

	Shards []ShardStatus `json:"shards"`
}

// Process is what the process has used. Its fields are beside those of Status in JSON.
type Process struct {
	UptimeSeconds    float64 `json:"uptime_seconds"`
	CPUUserSeconds   float64 `json:"cpu_user_seconds"` // of the process
	CPUSystemSeconds float64 `json:"cpu_system_seconds"`
	ResidentBytes    uint64  `json:"max_resident_bytes"` // the process's peak
	HeapBytes        uint64  `json:"heap_bytes"`         // of objects, live and not yet collected
	Goroutines       int     `json:"goroutines"`
}

// Protection is what protects the frames. Its fields are beside those of Status in JSON.
type Protection struct {
	Security   string `json:"security"` // "encrypted" or "plaintext"
	PublicKey  string `json:"public_key,omitempty"`
	KeyFile    string `json:"key_file,omitempty"`   // of the private key; empty: it is in memory alone
	PeersFile  string `json:"peers_file,omitempty"` // of the authorised peers; empty: none is read
	Authorised int    `json:"peers_authorised"`
}

// Totals counts what there is. Its fields are beside those of Status in JSON.
type Totals struct {
	Links   int `json:"links"`
	LinksUp int `json:"links_up"`
	// of each that is not: its name, and why
	LinksDown   []string `json:"links_down,omitempty"`
	Peers       int      `json:"peers"`
	Clients     int      `json:"clients"`
	Evictions   uint64   `json:"clients_evicted"`
	Connections int      `json:"connections"`
	Regions     int      `json:"regions"`
	Exports     int      `json:"exports"`
}

// Charges is what users hold, and may. Its fields are beside those of Status in JSON.
type Charges struct {
	PinnedBytes    uint64 `json:"pinned_bytes"`
	ChargedBytes   uint64 `json:"charged_bytes"`                 // to all users: registered memory, and queues
	PinnedLimit    uint64 `json:"pinned_limit_bytes"`            // of charged bytes
	MemlockLimit   uint64 `json:"memlock_limit_bytes,omitempty"` // RLIMIT_MEMLOCK of the daemon, if that limits it too
	ReserveBytes   uint64 `json:"reserve_bytes"`                 // that pinning leaves free
	RegionsCharged int    `json:"regions_charged"`
	RegionsLimit   int    `json:"regions_limit"`
	ClientsLimit   int    `json:"clients_limit"`
}

// SpacesStatus is what all spaces are and did: regions that are larger than what is pinned of them.
type SpacesStatus struct {
	Spaces      int    `json:"spaces"`
	PinnedBytes uint64 `json:"pinned_bytes"`       // at this moment
	FilledBytes uint64 `json:"filled_bytes"`       // that the daemon filled on demand
	FilledLimit uint64 `json:"filled_limit_bytes"` // over all users
	Counters    Counts `json:"counters"`

	// of chunks that were pinned: how long they waited for the pinner, and how long it took (DHL §V.C)
	PinDelay []Bucket `json:"pin_delay,omitempty"`
	PinTime  []Bucket `json:"pin_time,omitempty"`
}

// Bucket is how many durations were at most so long, and longer than the bound of the bucket before it. Those with none
// are left out.
type Bucket struct {
	Seconds float64 `json:"seconds"`
	Count   uint64  `json:"count"`
}

func bucketsOf(h *hist.Histogram) (list []Bucket) {
	for i, n := range h.Counts {
		if n > 0 {
			list = append(list, Bucket{hist.Bound(i), n})
		}
	}
	return list
}

// Results of a reload.
const (
	ReloadOK     = "ok"
	ReloadPart   = "in part" // some of it waits for a restart, or for a link
	ReloadFailed = "failed"  // nothing was changed
)

// ReloadStatus is how the latest reload of the configuration ended.
type ReloadStatus struct {
	At     time.Time `json:"at"`
	Result string    `json:"result"`
	Error  string    `json:"error,omitempty"`
	// settings that differ from those in force and take effect after a restart
	Restart []string `json:"after_restart,omitempty"`
}

// ShardStatus is one of the threads that serve the links.
type ShardStatus struct {
	Shard            int     `json:"shard"`  // from 0
	Thread           int     `json:"thread"` // its number for the kernel: /proc/PID/task/THREAD
	Clients          int     `json:"clients"`
	Connections      int     `json:"connections"`
	CPUUserSeconds   float64 `json:"cpu_user_seconds"`
	CPUSystemSeconds float64 `json:"cpu_system_seconds"`
	Receivers        int     `json:"receivers"`             // further threads that receive
	CPUReceivers     float64 `json:"cpu_receivers_seconds"` // of theirs
	Counters         Counts  `json:"counters"`
}

// LinkStatus is one configured link.
type LinkStatus struct {
	Name     string  `json:"name"`
	Number   int     `json:"number"`
	Up       bool    `json:"up"`
	Device   string  `json:"device,omitempty"`  // the interface in use, if it was renamed since
	Missing  bool    `json:"missing,omitempty"` // no interface has the name
	Listen   string  `json:"listen,omitempty"`  // of an IP link
	MAC      string  `json:"mac,omitempty"`     // of an IP link where it listens
	MTU      int     `json:"mtu,omitempty"`
	Driver   string  `json:"driver,omitempty"`
	RxSlots  int     `json:"rx_slots,omitempty"` // for each shard
	Weight   float64 `json:"weight"`
	Blocked  bool    `json:"blocked"`
	Opens    uint64  `json:"opens"`
	Discards uint64  `json:"send_discards"`
	Error    string  `json:"error,omitempty"`
	Kernel   Counts  `json:"kernel"` // what the kernel counted: received, dropped, truncated, sent, ...
	Counters Counts  `json:"counters"`

	RoundTrips hist.Histogram `json:"-"` // for metrics alone

	index int // of the interface in use
}

// PeerStatus is one node that was heard; where shards are more than one, what one shard here has with one shard there.
type PeerStatus struct {
	Name      string `json:"name"`
	Node      string `json:"node"`
	Shard     int    `json:"shard"`
	PeerShard int    `json:"peer_shard"`
	State     string `json:"state"` // known, connecting, open
	// "encrypted"; "plaintext"; "stranger": encrypted, but we do not authorise it
	Security      string  `json:"security"`
	Key           string  `json:"key,omitempty"` // its public key, if we authorise it
	AgeSeconds    float64 `json:"age_seconds,omitempty"`
	SilentSeconds float64 `json:"silent_seconds,omitempty"`
	Connections   int     `json:"connections"`
	InFlight      int     `json:"frames_in_flight"`
	Lost          uint64  `json:"frames_lost"`
	Retransmitted uint64  `json:"frames_retransmitted"`
	Received      uint64  `json:"bytes_received"`  // in frames with data, since the node was first heard
	Sessions      uint64  `json:"sessions_opened"` // likewise
	Flaps         bool    `json:"flaps"`           // four sessions or more opened in the last minute
	// times that one daemon with its key took over from another that still runs
	Twins  uint64       `json:"twins"`
	Reason string       `json:"reason,omitempty"` // why it has no session
	Paths  []PathStatus `json:"paths"`

	trouble    engine.Trouble
	troubleAgo time.Duration
	remedy     string
}

// AuthorisedStatus is one peer that may talk to us.
type AuthorisedStatus struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Node   string `json:"node"`
	Source string `json:"source"` // the file, or "configuration"
	// where it is reached over IP, joined by commas
	Endpoints string `json:"endpoints,omitempty"`
	// networks in which its IP addresses must be, joined by commas
	Allow  string `json:"allow,omitempty"`
	State  string `json:"state"`            // that of PeerStatus, or "not heard"
	Reason string `json:"reason,omitempty"` // why there is no session

	remedy string
	quiet  bool // nothing at all was heard
}

// PathStatus is one way to a peer.
type PathStatus struct {
	Link      string  `json:"link"`
	PeerLink  int     `json:"peer_link"`
	PeerMAC   string  `json:"peer_mac"`
	SeenAs    string  `json:"seen_as,omitempty"` // of an IP link: where the peer sees this node
	State     string  `json:"state"`
	MTU       int     `json:"mtu"`       // largest frame in use, bytes after its Ethernet header
	PeerMTU   int     `json:"peer_mtu"`  // that the peer says its link has; 0: it has not said
	Datagrams bool    `json:"datagrams"` // frames travel in datagrams (PROTOCOL clause 12)
	SRTT      int64   `json:"srtt_ns"`
	MinRTT    int64   `json:"min_rtt_ns"`
	Window    float64 `json:"window_frames"`
	// how congestion is controlled now: fixed, delay, fabric, wan or lossy ("auto" is fabric or wan)
	Congestion string `json:"congestion"`
	// off, tested, good, failed: whether marks of routers get through (PROTOCOL clause 21.12)
	Marks    string `json:"ecn"`
	InFlight int    `json:"frames_in_flight"`
	Counters Counts `json:"counters"`
}

// ConnStatus is one connection.
type ConnStatus struct {
	ID          uint32 `json:"id"`
	Peer        string `json:"peer"`
	Service     string `json:"service"`
	State       string `json:"state"`
	Ordered     bool   `json:"ordered"`
	PID         int32  `json:"pid"`
	Program     string `json:"program"`
	Shard       int    `json:"shard"`
	Submitted   uint32 `json:"submitted"`      // operations, modulo 2^32
	BytesIn     uint64 `json:"bytes_received"` // of operations of either end that succeeded
	BytesOut    uint64 `json:"bytes_sent"`
	Outstanding int    `json:"outstanding"`
	Held        int    `json:"held_segments"`
	Unread      int    `json:"unread_notifications"`
	Waiting     int    `json:"waiting_for_buffers"` // operations: sends, and what fences put behind them
	Credit      int    `json:"message_credit"`      // messages that the peer has buffers for
	Receives    int    `json:"posted_receives"`     // of its own or the shared queue
	Sharing     int    `json:"sharing_receives"`    // connections that take from the same queue; 0: it has its own
	Exports     int    `json:"exports"`

	// of the oldest of its exports
	ExportRights string `json:"export_rights,omitempty"`
	ExportBytes  uint64 `json:"export_bytes,omitempty"`
}

// RegionStatus is one registered region.
type RegionStatus struct {
	ID       uint32 `json:"id"`
	PID      int32  `json:"pid"`
	UID      uint32 `json:"uid"`
	Bytes    int    `json:"bytes"`
	Pinned   bool   `json:"pinned"`
	InFlight int    `json:"operations"`
	Exported bool   `json:"exported"`

	// of a space; of another region all is resident
	Resident uint64 `json:"resident_bytes"`
	Budget   uint64 `json:"pin_budget_bytes,omitempty"`
	Counters Counts `json:"space,omitempty"`
}

// ClientStatus is one attached process.
type ClientStatus struct {
	PID         int32    `json:"pid"`
	UID         uint32   `json:"uid"`
	Program     string   `json:"program"` // as it calls itself
	Shard       int      `json:"shard"`
	State       string   `json:"state"` // attached, or dying: gone, but its memory is still in use
	Depth       int      `json:"depth"`
	InFlight    int      `json:"operations"`
	Connections int      `json:"connections"`
	Regions     int      `json:"regions"`
	UserPinned  uint64   `json:"user_pinned_bytes"` // charged to its user, over all of that user's clients
	UserRegions int      `json:"user_regions"`
	Services    []string `json:"services"`
	Age         float64  `json:"age_seconds"` // since it came
}
