package edge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
)

// Embedded runs the transport inside the process: the shortest path, at the price of the links being this process's
// alone. It needs CAP_NET_RAW for interfaces, and nothing for IP links. Zero fields have edged's defaults.
type Embedded struct {
	Links []string // interfaces to use
	// UDP ports of this host that are IP links, across routers: "ADDRESS:PORT", or ":PORT" for all addresses. There is
	// at least one of these or of Links
	Listen []string
	// of each of them: flows, which routers with equal paths carry by different ones, 1 to 16; how they share the
	// network with others, "auto", "fabric", "wan" or "lossy"; whether routers are asked for marks of congestion,
	// "auto" or "off"
	Lanes           int
	Congestion, ECN string

	Name string // what peers dial; empty: one made of the host's name, unique on it

	EtherType uint16
	Scheduler string // how frames are spread over links: "adaptive", "wd", "wsrr", "srr"
	Profile   string // flow control: "default", "paper"
	Window    int    // frames in flight per peer
	Checksum  string // of plaintext: "full" or "header"
	Poll      string // how the transport's own thread waits: "adaptive", "block", "busy"
	OpWindow  int    // operations in flight per connection, a power of two
	// of links: "udp" packs frames for those who take them into UDP datagrams of up to 64 KiB; "alone" does not; empty:
	// udp on virtual links (veth), else alone
	Driver string

	// Copy chooses how payloads reach their place. Empty is the fastest way. The others are the paper's configurations,
	// to compare. "cp" copies at both ends, "notx" only at the receiver. "pinmap" exchanges runs of received pages, of
	// 256 KiB and more, for the pages of their place, and copies the rest. "shuffle" does so as the paper's NICs
	// require: frames arrive whole at page boundaries, and the sender cuts and lays out payloads to suit that (only in
	// plaintext). "nocp": the kernel puts payloads in their place. With "pinmap" and "shuffle" a region pins up to 8
	// MiB more, and Region.Bytes shows other pages after a large write, at the same addresses.
	Copy string

	// Security is "encrypted", the default, or "plaintext", only for trusted wires. Encrypted, the private key is the
	// node's identity, and the node talks only to Peers: each of two nodes must authorise the other's public key. A
	// node without Key and KeyFile gets a key for this run, which node.PublicKey returns.
	Security string
	Key      string // the private key, as node.NewKey or edgectl key new make it
	KeyFile  string // or the file that holds it, made at first use
	// public keys of authorised peers, by the name they are dialled by; node.Authorise changes them
	Peers map[string]string
	// where some of Peers are over IP, "HOST:PORT", by name; of two nodes with IP links one at least knows the other's
	Endpoints map[string][]string
	// networks to which some of Peers are confined, such as "10.0.0.0/8", by name: frames from elsewhere get no answer
	Allow     map[string][]string
	PeersFile string // more of them, as edgectl peers edits it

	DialTimeout time.Duration // how long Dial waits when its context does not say
	DeadTime    time.Duration // silence after which a peer is down

	Log *slog.Logger // nil: nothing is logged

	// What becomes of data for memory of a space that is not pinned: "inline" (default), used at once if it was pinned
	// before and the host has no swap, else kept until it is pinned; "park", always kept.
	Misses string

	open func(name string) (linkdrv.Driver, error) // of links; nil: real interfaces
}

func cloneLists(of map[string][]string) map[string][]string {
	of = maps.Clone(of)
	for name, list := range of {
		of[name] = slices.Clone(list)
	}
	return of
}

// openEmbedded starts a transport and attaches to it. The Device owns it.
func openEmbedded(ctx context.Context, cfg Config) (*Device, error) {
	own := *cfg.Embedded
	own.Endpoints, own.Allow = cloneLists(own.Endpoints), cloneLists(own.Allow) // they outlive this call
	e := &own
	cfg.Embedded = e
	if len(e.Links)+len(e.Listen) == 0 {
		return nil, invalid("Embedded.Links and Embedded.Listen are empty; name at least one interface or UDP port")
	}
	if len(e.Listen) == 0 && (e.Lanes != 0 || e.Congestion != "" || e.ECN != "") {
		return nil, invalid("Embedded.Lanes, Congestion and ECN are of IP links, and Embedded.Listen is empty")
	}
	for _, names := range []map[string][]string{e.Endpoints, e.Allow} {
		for name := range names {
			if _, ok := e.Peers[name]; !ok {
				return nil, invalid("Embedded.Endpoints or Allow names %q, which Embedded.Peers does not", name)
			}
		}
	}
	c := config.Config{
		Name: e.Name, EtherType: e.EtherType, Scheduler: e.Scheduler, Profile: e.Profile, Window: e.Window,
		Checksum: e.Checksum,
		Poll:     e.Poll, OpWindow: e.OpWindow, Driver: e.Driver, Copy: e.Copy,
		Timing:   config.Timing{DialTimeout: e.DialTimeout, DeadTime: e.DeadTime},
		OnDemand: config.OnDemand{Misses: e.Misses},
		Security: e.Security, KeyFile: e.KeyFile, PeersFile: e.PeersFile,
		Peers: e.peers(e.Peers),
	}
	c.Limits.Queue = max(cfg.QueueDepth, defaultQueueDepth)
	for _, name := range e.Links {
		c.Links = append(c.Links, config.Link{Name: name})
	}
	for _, at := range e.Listen {
		c.Links = append(c.Links, config.Link{Listen: at, Lanes: e.Lanes, Congestion: e.Congestion, ECN: e.ECN})
	}
	o := daemon.Options{Log: e.Log}
	if e.Key != "" {
		if e.KeyFile != "" {
			return nil, invalid("Embedded.Key and Embedded.KeyFile are both set; give one")
		}
		key, err := secure.ParsePrivateKey(e.Key)
		if err != nil {
			return nil, invalid("Embedded.Key: %v", err)
		}
		o.Key = &key
	}
	if e.open != nil {
		o.Open = func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) { return e.open(l.Name) }
	}
	emb, err := daemon.NewEmbedded(c, o)
	if err != nil {
		return nil, err
	}
	ctl, err := emb.Attach()
	if err != nil {
		return nil, errors.Join(err, emb.Close())
	}
	return attach(ctx, ctl, cfg, emb, emb.Close)
}

// peers are nodes to authorise, public keys by name, with where they may be: in order of names, so that errors are the
// same each time.
func (e *Embedded) peers(keys map[string]string) (list []config.Peer) {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		list = append(list, config.Peer{Name: name, Key: keys[name], Endpoints: e.Endpoints[name],
			Allow: e.Allow[name]})
	}
	return list
}
