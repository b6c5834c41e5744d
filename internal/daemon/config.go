package daemon

import (
	"time"
)

// Config is everything edged can be told. Zero fields get their defaults in Normalize.
type Config struct {
	Name      string        `toml:"name"`       // what peers dial; default: the host's name
	NodeID    string        `toml:"node_id"`    // 16 hexadecimal digits; default: derived from the machine id and Name
	Socket    string        `toml:"socket"`     // control socket; default: $EDGE_SOCKET or /run/edged/edged.sock
	Group     string        `toml:"group"`      // group that may connect to the socket; default: the daemon's own
	Mode      string        `toml:"mode"`       // octal permissions of the socket; default: 0660
	Links     []Link        `toml:"link"`       // at least one
	WaitLinks bool          `toml:"wait_links"` // start although links are missing or down, and use them when they come
	EtherType uint16        `toml:"ethertype"`  // default: 0x88b5
	Scheduler string        `toml:"scheduler"`  // which link gets the next frame; default: adaptive
	Profile   string        `toml:"profile"`    // flow-control profile; default: default
	Window    int           `toml:"window"`     // frames a session may have in flight; 0: the profile's
	Checksum  string        `toml:"checksum"`   // "full" (default) or "header"
	Poll      string        `toml:"poll"`       // "adaptive" (default), "block" or "busy"
	Spin      time.Duration `toml:"spin"`       // how long adaptive polls after the last work; default: 50us
	OpWindow  int           `toml:"op_window"`  // operations in flight per connection, power of two; default: 1024

	DialTimeout time.Duration `toml:"dial_timeout"` // default: 5s
	DeadTime    time.Duration `toml:"dead_time"`    // silence after which a peer is down; default: 15s
	KeepAlive   time.Duration `toml:"keep_alive"`   // idle time after which a peer is probed; default: 1s
	HelloTime   time.Duration `toml:"hello_time"`   // period of the broadcast that makes nodes find each other; default: 1s

	Limits  Limits  `toml:"limits"`
	Metrics Metrics `toml:"metrics"`
	Log     Log     `toml:"log"`
}

// Link is one local interface to use.
type Link struct {
	Name   string  `toml:"name"`   // of the interface
	Weight float64 `toml:"weight"` // static share for the wsrr and wd schedulers; default: 1
	Driver string  `toml:"driver"` // "ring", "mmsg", or empty: chosen by MTU
	Slots  int     `toml:"slots"`  // receive ring slots; 0: the driver's default
}

// Limits bound what clients may hold, so that none can starve the others or the host.
type Limits struct {
	Clients        int  `toml:"clients"`          // attached at once; default: 256
	ClientsPerUser int  `toml:"clients_per_user"` // default: 128
	Regions        int  `toml:"regions"`          // per client; default: 4096
	Exports        int  `toml:"exports"`          // per client; default: 16384
	Conns          int  `toml:"conns"`            // per client; default: 16384
	Services       int  `toml:"services"`         // per client; default: 256
	Backlog        int  `toml:"backlog"`          // connection requests a client has not answered; default: 256
	Pinned         Size `toml:"pinned"`           // bytes of registered memory per user; default: half of the host's memory
	Queue          int  `toml:"queue"`            // submission entries per client, power of two; default: 4096
}

// Metrics says where the HTTP endpoint is.
type Metrics struct {
	Listen string `toml:"listen"` // host:port for /metrics, /livez and /readyz; empty: off
}

// Log says what is logged and how.
type Log struct {
	Level  string `toml:"level"`  // debug, info (default), warn, error
	Format string `toml:"format"` // text (default) or json
}
