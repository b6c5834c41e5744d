// Package config reads the configuration of edged: the file, its defaults, and what is refused. It reads files and
// looks up users, and starts nothing.
package config

import "time"

// Config is the configuration of edged. Zero fields get their defaults in Normalize.
type Config struct {
	Name string `toml:"name"` // what peers dial; default: the host's name
	// 16 hexadecimal digits, plaintext only; default: derived from the key, in plaintext from the machine id and Name
	NodeID    string `toml:"node_id"`
	Socket    string `toml:"socket"`     // control socket; default: $EDGE_SOCKET or /run/edged/edged.sock
	Group     string `toml:"group"`      // group that may connect to the socket; default: the daemon's own
	Mode      string `toml:"mode"`       // octal permissions of the socket; default: 0660
	Links     []Link `toml:"link"`       // at least one
	WaitLinks bool   `toml:"wait_links"` // start although all links are missing or down; one of several is waited for anyway
	EtherType uint16 `toml:"ethertype"`  // default: 0x88b5
	Scheduler string `toml:"scheduler"`  // which link gets the next frame; default: adaptive
	Profile   string `toml:"profile"`    // flow-control profile; default: default
	Window    int    `toml:"window"`     // frames a session may have in flight; 0: the profile's
	Checksum  string `toml:"checksum"`   // "full" (default) or "header"
	// driver of links that name none: "udp", which also sends frames in datagrams; "alone"; or "ring" or "mmsg", which
	// are "alone" with that receiver. Default: udp on veth, otherwise alone
	Driver string `toml:"driver"`
	Poll   string `toml:"poll"` // "adaptive" (default), "block" or "busy"
	// how long adaptive polls after the last work, up to four times that while sleeps prove short; default: 50us
	Spin time.Duration `toml:"spin"`
	// threads that serve the links, each with clients of its own; 1 (default) to 8
	Shards int `toml:"shards"`
	// further threads of each shard that receive, which share out its links; 0 (default) to 8
	Receivers int `toml:"receivers"`
	OpWindow  int `toml:"op_window"` // operations in flight per connection, power of two; default: 1024
	// how payloads reach their place: "" (default: what is fastest), or "cp", "notx", "shuffle", "nocp", embedded also
	// "pinmap": see copying.go
	Copy string `toml:"copy"`

	OnDemand // keys of the file like those beside them
	Timing

	Security  string `toml:"security"`   // "encrypted" (default) or "plaintext", for trusted wires
	KeyFile   string `toml:"key_file"`   // this node's private key, made at first start; default: identity.KeyPath
	PeersFile string `toml:"peers_file"` // authorised peers, lines of KEY NAME; default: identity.PeersPath
	Peers     []Peer `toml:"peer"`       // more of them

	Forward []map[string]any `toml:"forward"` // rules of edgectl forward, which reads and checks them
	Rights

	Limits  Limits  `toml:"limits"`
	Metrics Metrics `toml:"metrics"`
	Log     Log     `toml:"log"`
}

// Rights says what not every local user may do. Its keys are of the file like those beside it.
type Rights struct {
	Services []Service `toml:"service"` // names that not everybody may offer
	// users, by name or number, who may drain the daemon, see everybody's frames and have it read its peers again;
	// default: root and the daemon's own user
	Admins []string `toml:"admins"`
}

// OnDemand says how memory of spaces is pinned on demand.
type OnDemand struct {
	// what happens to data for memory that is not resident. "inline" (default): it is used at once if the memory was
	// resident before and the host has no swap, otherwise it is kept until the memory is resident. "park": it is always
	// kept. "drop": it is not received, and sent again. The latter two serve to measure their cost.
	Misses string `toml:"misses"`
	// which memory of a space is pinned before it is used. "exact" (default): memory that operations announce, and
	// memory behind two neighbours that missed. "sequential": only the latter. "off": none.
	Prefetch string `toml:"prefetch"`
}

// Timing says how long the daemon waits for peers.
type Timing struct {
	DialTimeout time.Duration `toml:"dial_timeout"` // default: 5s
	DeadTime    time.Duration `toml:"dead_time"`    // silence after which a peer is down; default: 15s
	KeepAlive   time.Duration `toml:"keep_alive"`   // idle time after which a peer is probed; default: 1s
	// period of the broadcast that makes nodes find each other; default: 1s
	HelloTime time.Duration `toml:"hello_time"`
}

// Values of Config.Security.
const (
	Encrypted = "encrypted"
	Plaintext = "plaintext"
)

// Values of Config.Misses.
const (
	MissesPark   = "park"
	MissesInline = "inline"
	MissesDrop   = "drop"
)

// Peer is an authorised peer.
type Peer struct {
	Name string `toml:"name"` // what it is dialled by here
	Key  string `toml:"key"`  // its public key: edgectl key show
	// where it is reached over IP, each HOST:PORT; default: only by what it sends
	Endpoints []string `toml:"endpoints"`
	// networks in which its IP addresses must be, such as "10.0.0.0/8"; default: it may be anywhere
	Allow []string `toml:"allow"`
}

// Link is one local interface to use, or a UDP port.
type Link struct {
	Name string `toml:"name"` // of the interface; of an IP link what people call it, default: listen
	// ADDRESS:PORT, or :PORT for all addresses: an IP link, whose frames are UDP datagrams that cross routers
	Listen string `toml:"listen"`
	// flows of an IP link, which routers with equal paths carry by different ones: 1 (default) to 16. Each counts as a
	// link
	Lanes int `toml:"lanes"`
	// of an IP link: "auto" (default), "fabric", "wan" or "lossy", as docs/CLOUDS.md says
	Congestion string `toml:"congestion"`
	// of an IP link: "auto" (default): its frames ask routers for marks of congestion where these get through; "off"
	ECN    string  `toml:"ecn"`
	DSCP   int     `toml:"dscp"`   // of an IP link: traffic class of its datagrams, 0 (default) to 63
	Weight float64 `toml:"weight"` // static share for the wsrr and wd schedulers; default: 1
	Driver string  `toml:"driver"` // as Driver above; empty: that; of an IP link: "ip"
	Slots  int     `toml:"slots"`  // receive ring slots; 0: the driver's default
}

// Limits bound what clients may hold, so that none can starve the others or the host.
type Limits struct {
	Clients        int `toml:"clients"`          // attached at once; default: 256, or fewer where RLIMIT_NOFILE is low
	ClientsPerUser int `toml:"clients_per_user"` // default: 128
	Regions        int `toml:"regions"`          // per client; default: 4096
	Exports        int `toml:"exports"`          // per client, and 4 times as many per user; default: 16384
	Conns          int `toml:"conns"`            // per client; default: 16384
	Dials          int `toml:"dials"`            // that wait for an answer, per client; default: 4096
	Services       int `toml:"services"`         // per client; default: 256
	Backlog        int `toml:"backlog"`          // connection requests a client has not answered; default: 256
	// bytes of registered memory and queues per user; default: half of the memory of the host, or of edged's control
	// group
	Pinned         Size `toml:"pinned"`
	Queue          int  `toml:"queue"`            // submission entries per client, power of two; default: 4096
	RegionsPerUser int  `toml:"regions_per_user"` // over all clients of a user; default: 16384
	ConnsPerUser   int  `toml:"conns_per_user"`   // likewise; default: 32768
	OpsPerUser     int  `toml:"ops_per_user"`     // operations in flight, likewise; default: 65536
	// bytes of registered memory and queues, over all users; default: three quarters of that memory
	PinnedTotal Size `toml:"pinned_total"`
	// bytes of spaces that the daemon fills on demand, per user, and over all users; default: pinned and pinned_total
	Filled      Size `toml:"filled"`
	FilledTotal Size `toml:"filled_total"`
	// over all users; default: 65536, or what vm.max_map_count has room for
	RegionsTotal int `toml:"regions_total"`
	// bytes that pinning leaves free on the host and in the control group; default: a 32nd of that memory, 16 MiB to 1
	// GiB
	Reserve Size `toml:"reserve"`
	// processes that may grant memory where it is (ABI A7.19), each with a thread; a user may have an eighth of them;
	// default: none, for the reason in SECURITY
	Couriers int `toml:"couriers"`
	// control requests of a user per second, further ones wait; default: 4000
	Requests int `toml:"requests"`
}

// Metrics says where the HTTP endpoint is.
type Metrics struct {
	Listen string `toml:"listen"` // host:port for /metrics, /livez and /readyz; empty: off
	// TLS and users, a file in the format of the Prometheus exporter toolkit; empty: plain HTTP
	WebConfig string `toml:"web_config"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `toml:"level"`  // debug, info (default), warn, error
	Format string `toml:"format"` // text (default) or json
}
