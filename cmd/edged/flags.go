package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"multiedge/internal/clidoc"
	"multiedge/internal/config"
)

// defaultConfig is read when it exists and no other is named.
const defaultConfig = "/etc/edged/edged.toml"

// ipFlags describe IP links.
type ipFlags struct {
	Listen     []string `placeholder:"[ADDR]:PORT" help:"UDP port to use as a link that crosses routers (IP link), such as :9470; may be repeated. With --link, beside those interfaces; either replaces the links of the file."`
	Lanes      *int     `placeholder:"N" help:"Lanes of each IP link: flows that routers with equal paths carry by different ones, 1 to 16 (default: 1)."`
	Congestion *string  `placeholder:"NAME" help:"How IP links share the network with others: auto, fabric, wan or lossy (default: auto)."`
	ECN        *string  `placeholder:"NAME" help:"Whether IP links ask routers for marks of congestion: auto (where these get through) or off (default: auto)."`
}

// flags are laid over the configuration file. A flag that is not given leaves the file's setting alone.
type flags struct {
	Config string   `short:"c" placeholder:"FILE" help:"Configuration file (default: /etc/edged/edged.toml if it exists)."`
	Link   []string `short:"l" placeholder:"NAME" help:"Interface to use; may be repeated. Replaces the links of the file."`
	ipFlags
	Name          *string          `short:"n" help:"Name by which peers dial this node (default: the host's name)."`
	Socket        *string          `placeholder:"PATH" help:"Control socket (default: $$EDGE_SOCKET or /run/edged/edged.sock)."`
	Group         *string          `help:"Group that may connect to the socket."`
	Mode          *string          `placeholder:"OCTAL" help:"Permissions of the socket (default: 0660)."`
	User          string           `placeholder:"USER" help:"User to run as, by name or number, if started as root: it gets the directories of socket and key, and keeps CAP_NET_RAW and CAP_IPC_LOCK. For containers."`
	Admin         []string         `placeholder:"USER" help:"User who may drain the daemon, trace frames and have peers read again, by name or number; may be repeated (default: root and the daemon's user)."`
	WaitLinks     bool             `help:"Start even if all links are missing or down, and use them when they come up. While one is there, the others are waited for anyway."`
	Ethertype     *string          `placeholder:"NUMBER" help:"EtherType of the frames (default: 0x88b5)."`
	Scheduler     *string          `help:"How frames are spread over links: adaptive, srr, wsrr, wd."`
	Shards        *int             `placeholder:"N" help:"Threads that serve the links, each with clients of its own (default: 1)."`
	Receivers     *int             `placeholder:"N" help:"Receivers: further threads of each shard, which share its links (default: 0)."`
	Profile       *string          `help:"Flow control: default, or paper as published (default: default)."`
	Window        *int             `placeholder:"FRAMES" help:"Frames in flight per peer (default: the profile's)."`
	Checksum      *string          `help:"What CRC32C covers in plaintext: full or header."`
	Plaintext     bool             `help:"Do not encrypt or authenticate frames: only for trusted wires."`
	KeyFile       *string          `placeholder:"FILE" help:"This node's private key, made at first start (default: /var/lib/edged/key, or in the user's state directory)."`
	PeersFile     *string          `placeholder:"FILE" help:"Authorised peers (default: /etc/edged/peers, or beside the key)."`
	Driver        *string          `placeholder:"NAME" help:"How links move frames: udp (super-frames, GSO and GRO, to peers that take them), alone (each by itself, received by ring or mmsg according to the MTU), ring or mmsg (default: udp on veth, otherwise alone)."`
	Poll          *string          `help:"How the daemon waits for frames: adaptive (poll, then sleep), block or busy (default: adaptive)."`
	Spin          *time.Duration   `help:"How long adaptive polls after the last work (default: 50us)."`
	MetricsListen *string          `placeholder:"HOST:PORT" help:"Address that serves /metrics, /livez and /readyz, for example 127.0.0.1:9469; empty: off."`
	MetricsWeb    *string          `name:"metrics-web-config" placeholder:"FILE" help:"TLS and users for the metrics: a web configuration file of the Prometheus exporter toolkit; empty: plain HTTP."`
	LogLevel      *string          `help:"Level of the log: debug, info, warn or error (default: info)."`
	LogFormat     *string          `help:"Format of the log: text or json (default: text)."`
	Check         bool             `help:"Check the configuration and exit."`
	Version       kong.VersionFlag `help:"Print the version and exit."`

	clidoc.Flags
}

// config reads the file and lays the flags over it.
func (f *flags) config() (config.Config, error) {
	cfg, err := f.file()
	if err != nil {
		return cfg, err
	}
	if len(f.Link)+len(f.Listen) > 0 {
		old := cfg.Links
		cfg.Links = nil
		for _, name := range f.Link {
			cfg.Links = append(cfg.Links, settingsOf(old, name))
		}
		for _, at := range f.Listen {
			l := settingsOf(old, at)
			l.Listen = at
			cfg.Links = append(cfg.Links, l)
		}
	}
	routed := false
	for i := range cfg.Links {
		if cfg.Links[i].Listen != "" {
			routed = true
			overlay(&cfg.Links[i].Lanes, f.Lanes)
			overlay(&cfg.Links[i].Congestion, f.Congestion)
			overlay(&cfg.Links[i].ECN, f.ECN)
		}
	}
	if !routed && (f.Lanes != nil || f.Congestion != nil || f.ECN != nil) {
		return cfg, errors.New("--lanes, --congestion and --ecn are of IP links, and there is none: add --listen")
	}
	overlay(&cfg.Name, f.Name)
	overlay(&cfg.Socket, f.Socket)
	overlay(&cfg.Group, f.Group)
	overlay(&cfg.Mode, f.Mode)
	if len(f.Admin) > 0 {
		cfg.Admins = f.Admin
	}
	cfg.WaitLinks = cfg.WaitLinks || f.WaitLinks
	overlay(&cfg.Scheduler, f.Scheduler)
	overlay(&cfg.Shards, f.Shards)
	overlay(&cfg.Receivers, f.Receivers)
	overlay(&cfg.Profile, f.Profile)
	overlay(&cfg.Window, f.Window)
	overlay(&cfg.Checksum, f.Checksum)
	if f.Plaintext {
		cfg.Security = config.Plaintext
	}
	overlay(&cfg.KeyFile, f.KeyFile)
	overlay(&cfg.PeersFile, f.PeersFile)
	overlay(&cfg.Driver, f.Driver)
	overlay(&cfg.Poll, f.Poll)
	overlay(&cfg.Spin, f.Spin)
	overlay(&cfg.Metrics.Listen, f.MetricsListen)
	overlay(&cfg.Metrics.WebConfig, f.MetricsWeb)
	overlay(&cfg.Log.Level, f.LogLevel)
	overlay(&cfg.Log.Format, f.LogFormat)
	if f.Ethertype != nil {
		n, err := strconv.ParseUint(*f.Ethertype, 0, 16)
		if err != nil {
			return cfg, fmt.Errorf("--ethertype: %q is not a number such as 0x88b5", *f.Ethertype)
		}
		cfg.EtherType = uint16(n)
	}
	return cfg, nil
}

// settingsOf keeps what the file says of a link that is named by a flag.
func settingsOf(links []config.Link, name string) config.Link {
	for _, l := range links {
		if l.Name == name || l.Name == "" && l.Listen == name { // a port is an IP link's name unless it has one
			return l
		}
	}
	return config.Link{Name: name}
}

func (f *flags) file() (config.Config, error) {
	if f.Config != "" {
		return config.Load(f.Config)
	}
	cfg, err := config.Load(defaultConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Config{}, nil
	}
	return cfg, err
}

func overlay[T any](dst *T, flag *T) {
	if flag != nil {
		*dst = *flag
	}
}
