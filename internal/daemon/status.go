package daemon

// StatusSchema numbers the JSON below. It grows when a field changes its meaning or goes; new fields do not change it.
const StatusSchema = 1

// Counts are counters by name, in snake case. All are totals since the daemon's start.
type Counts map[string]uint64

// Status is the answer to a status request for "status", and what edgectl status -j prints.
type Status struct {
	Schema           int     `json:"schema"`
	Node             string  `json:"node"`
	Name             string  `json:"name"`
	Version          string  `json:"version"`
	GoVersion        string  `json:"go_version"`
	Epoch            string  `json:"epoch"` // hexadecimal; differs at each start
	PID              int     `json:"pid"`
	Socket           string  `json:"socket,omitempty"`
	Draining         bool    `json:"draining"`
	UptimeSeconds    float64 `json:"uptime_seconds"`
	CPUUserSeconds   float64 `json:"cpu_user_seconds"` // of the process
	CPUSystemSeconds float64 `json:"cpu_system_seconds"`
	ResidentBytes    uint64  `json:"max_resident_bytes"` // the process's peak
	Scheduler        string  `json:"scheduler"`
	Profile          string  `json:"profile"`
	Checksum         string  `json:"checksum"`
	Poll             string  `json:"poll"`
	EtherType        string  `json:"ethertype"`
	Links            int     `json:"links"`
	LinksUp          int     `json:"links_up"`
	Peers            int     `json:"peers"`
	Clients          int     `json:"clients"`
	Evictions        uint64  `json:"clients_evicted"`
	Connections      int     `json:"connections"`
	Regions          int     `json:"regions"`
	Exports          int     `json:"exports"`
	PinnedBytes      uint64  `json:"pinned_bytes"`
	Counters         Counts  `json:"counters"`
}

// LinkStatus is one configured link.
type LinkStatus struct {
	Name     string  `json:"name"`
	Number   int     `json:"number"`
	Up       bool    `json:"up"`
	Device   string  `json:"device,omitempty"` // the interface in use, if it was renamed since
	MAC      string  `json:"mac,omitempty"`
	MTU      int     `json:"mtu,omitempty"`
	Driver   string  `json:"driver,omitempty"`
	RxSlots  int     `json:"rx_slots,omitempty"`
	Weight   float64 `json:"weight"`
	Blocked  bool    `json:"blocked"`
	Opens    uint64  `json:"opens"`
	Discards uint64  `json:"send_discards"`
	Error    string  `json:"error,omitempty"`
	Kernel   Counts  `json:"kernel"` // what the kernel counted: received, dropped, truncated, sent, ...
	Counters Counts  `json:"counters"`
}

// PeerStatus is one node that was heard.
type PeerStatus struct {
	Name          string       `json:"name"`
	Node          string       `json:"node"`
	State         string       `json:"state"` // known, connecting, open
	AgeSeconds    float64      `json:"age_seconds,omitempty"`
	SilentSeconds float64      `json:"silent_seconds,omitempty"`
	Connections   int          `json:"connections"`
	InFlight      int          `json:"frames_in_flight"`
	Lost          uint64       `json:"frames_lost"`
	Retransmitted uint64       `json:"frames_retransmitted"`
	Paths         []PathStatus `json:"paths"`
}

// PathStatus is one way to a peer.
type PathStatus struct {
	Link     string  `json:"link"`
	PeerLink int     `json:"peer_link"`
	PeerMAC  string  `json:"peer_mac"`
	State    string  `json:"state"`
	MTU      int     `json:"mtu"`
	SRTT     int64   `json:"srtt_ns"`
	MinRTT   int64   `json:"min_rtt_ns"`
	Window   float64 `json:"window_frames"`
	InFlight int     `json:"frames_in_flight"`
	Counters Counts  `json:"counters"`
}

// ConnStatus is one connection.
type ConnStatus struct {
	ID          uint32 `json:"id"`
	Peer        string `json:"peer"`
	Service     string `json:"service"`
	State       string `json:"state"`
	Ordered     bool   `json:"ordered"`
	PID         int32  `json:"pid"`
	Submitted   uint32 `json:"submitted"` // operations, modulo 2^32
	Outstanding int    `json:"outstanding"`
	Held        int    `json:"held_segments"`
	Unread      int    `json:"unread_notifications"`
	Exports     int    `json:"exports"`
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
}

// ClientStatus is one attached process.
type ClientStatus struct {
	PID         int32    `json:"pid"`
	UID         uint32   `json:"uid"`
	State       string   `json:"state"` // attached, or dying: gone, but its memory is still in use
	Depth       int      `json:"depth"`
	InFlight    int      `json:"operations"`
	Connections int      `json:"connections"`
	Regions     int      `json:"regions"`
	Services    []string `json:"services"`
	SinceUnix   int64    `json:"since_unix"`
}
