package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/identity"
	"multiedge/internal/ipc"
	"multiedge/internal/wire"
	"multiedge/linkdrv"
	"multiedge/regmem"
	"multiedge/sched"

	"golang.org/x/sys/unix"
)

// MaxCouriers bounds limits.couriers: each is a thread.
const MaxCouriers = 1024

// MaxQueue is the deepest submission queue a client can ask for.
const MaxQueue = ipc.MaxDepth

// MaxShards is the most threads that can serve a daemon's links.
const MaxShards = wire.MaxShards

// MaxReceivers bounds the receivers of a shard: the bookkeeping of one thread cannot employ more.
const MaxReceivers = 8

// MaxLimit bounds every count in Limits.
const MaxLimit = 1 << 16

// takenTypes are EtherTypes of frames that the kernel itself handles.
var takenTypes = []uint16{0x0800, 0x0806, 0x8100, 0x86dd, 0x88a8}

// maxIfName is IFNAMSIZ without its terminator.
const maxIfName = 15

// Normalize fills defaults and checks everything that can be checked without touching an interface. All problems are
// reported at once, each naming its key. It is idempotent.
func (c *Config) Normalize() error {
	c.fillDefaults()
	var p problems
	p.check(len(c.Name) <= engine.MaxNodeName, "name", "%q is longer than %d bytes", c.Name, engine.MaxNodeName)
	p.check(utf8.ValidString(c.Name) && !strings.ContainsFunc(c.Name, func(r rune) bool {
		return unicode.IsSpace(r) ||
			!unicode.IsPrint(r)
	}), "name", "%q contains white space or characters that cannot be printed", c.Name)
	c.checkSecurity(&p)
	if c.NodeID != "" {
		_, err := ParseNodeID(c.NodeID)
		p.check(err == nil, "node_id", "%v", err)
	}
	_, err := ParseMode(c.Mode)
	p.check(err == nil, "mode", "%v", err)
	p.check(len(c.Socket) < 108, "socket", "the path is longer than the 107 bytes a Unix socket can have: %s", c.Socket)
	p.check(c.EtherType >= 0x600, "ethertype",
		"%#x is a length, not an EtherType; use 0x88b5 or another value from 0x600 up", c.EtherType)
	p.check(!slices.Contains(takenTypes, c.EtherType), "ethertype",
		"%#x is that of IP, ARP or VLAN tags; use 0x88b5 or another one that nobody uses", c.EtherType)
	p.oneOf("scheduler", c.Scheduler, sched.Names())
	_, err = flowctl.ProfileByName(c.Profile)
	p.check(err == nil, "profile", "%v", err)
	p.check(c.Window >= 0 && c.Window <= 1<<14, "window", "%d is outside 0..16384 frames", c.Window)
	p.oneOf("checksum", c.Checksum, []string{"full", "header"})
	p.oneOf("poll", c.Poll, []string{"adaptive", "block", "busy"})
	p.oneOf("misses", c.Misses, []string{MissesPark, MissesInline, MissesDrop})
	p.oneOf("prefetch", c.Prefetch, regmem.Aheads)
	p.check(c.Spin >= 0 && c.Spin <= time.Second, "spin", "%v is outside 0..1s", c.Spin)
	p.check(powerOfTwo(c.OpWindow) && c.OpWindow >= 2 && c.OpWindow <= 1<<15, "op_window",
		"%d is not a power of two from 2 to 32768", c.OpWindow)
	p.check(c.Shards >= 1 && c.Shards <= MaxShards, "shards", "%d is outside 1..%d", c.Shards, MaxShards)
	p.check(c.Receivers >= 0 && c.Receivers <= MaxReceivers, "receivers", "%d is outside 0..%d", c.Receivers,
		MaxReceivers)
	p.positive("dial_timeout", c.DialTimeout)
	p.positive("dead_time", c.DeadTime)
	p.positive("keep_alive", c.KeepAlive)
	p.positive("hello_time", c.HelloTime)
	p.check(c.KeepAlive < c.DeadTime, "keep_alive",
		"%v is not below dead_time (%v): every idle peer would be declared down", c.KeepAlive, c.DeadTime)
	c.checkLinks(&p)
	c.checkCopy(&p)
	c.checkLimits(&p)
	c.checkServices(&p)
	if c.Metrics.Listen != "" {
		_, port, err := net.SplitHostPort(c.Metrics.Listen)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		p.check(err == nil, "metrics.listen", "%q is not host:port, for example 127.0.0.1:9469", c.Metrics.Listen)
	}
	_, err = c.Log.level()
	p.check(err == nil, "log.level", "%v", err)
	p.oneOf("log.format", c.Log.Format, []string{"text", "json"})
	return errors.Join(p...)
}

func (c *Config) fillDefaults() {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	setDefault(&c.Name, "localhost")
	setDefault(&c.Socket, SocketPath())
	setDefault(&c.Mode, "0660")
	setDefault(&c.EtherType, 0x88b5)
	setDefault(&c.Scheduler, "adaptive")
	setDefault(&c.Profile, "default")
	setDefault(&c.Checksum, "full")
	setDefault(&c.Security, Encrypted)
	setDefault(&c.KeyFile, identity.KeyPath())
	setDefault(&c.PeersFile, identity.PeersPath(c.KeyFile))
	setDefault(&c.Poll, "adaptive")
	setDefault(&c.Misses, MissesInline)
	setDefault(&c.Prefetch, regmem.AheadExact.String())
	setDefault(&c.Spin, 50*time.Microsecond)
	setDefault(&c.OpWindow, 1024)
	setDefault(&c.Shards, 1)
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.DeadTime, 15*time.Second)
	setDefault(&c.KeepAlive, time.Second)
	setDefault(&c.HelloTime, time.Second)
	setDefault(&c.Limits.Clients, min(256, clientRoom()))
	setDefault(&c.Limits.ClientsPerUser, min(128, c.Limits.Clients))
	setDefault(&c.Limits.Regions, 4096)
	setDefault(&c.Limits.Exports, 16384)
	setDefault(&c.Limits.Conns, 16384)
	setDefault(&c.Limits.Dials, 4096)
	setDefault(&c.Limits.Services, 256)
	setDefault(&c.Limits.Backlog, 256)
	setDefault(&c.Limits.Queue, 4096)
	setDefault(&c.Limits.RegionsPerUser, 16384)
	setDefault(&c.Limits.ConnsPerUser, 32768)
	setDefault(&c.Limits.OpsPerUser, 65536)
	setDefault(&c.Limits.Requests, 4000)
	setDefault(&c.Limits.RegionsTotal, min(MaxLimit, mappingRoom()))
	if room := memoryRoom(); c.Limits.Pinned == 0 || c.Limits.PinnedTotal == 0 || c.Limits.Reserve == 0 {
		setDefault(&c.Limits.Pinned, room/2)
		setDefault(&c.Limits.PinnedTotal, room/4*3)
		setDefault(&c.Limits.Reserve, defaultReserve(room))
	}
	setDefault(&c.Limits.Filled, c.Limits.Pinned)
	setDefault(&c.Limits.FilledTotal, c.Limits.PinnedTotal)
	setDefault(&c.Log.Level, "info")
	setDefault(&c.Log.Format, "text")
	for i := range c.Links {
		l := &c.Links[i]
		setDefault(&l.Weight, 1)
		if l.Listen != "" {
			setDefault(&l.Driver, linkdrv.KindIP)
			setDefault(&l.Congestion, flowctl.IPCongestions()[0])
			setDefault(&l.ECN, ECNAuto)
			setDefault(&l.Name, l.Listen)
		}
		setDefault(&l.Lanes, 1)
		setDefault(&l.Driver, c.Driver)
		setDefault(&c.Links[i].Slots, fixedWindowSlots(c.Profile))
	}
	c.fillCopy()
}

// fixedWindowSlots is how many receive slots a link needs so that peers can use all of a profile's fixed window: three
// quarters of them count (PROTOCOL clause 8.7). 0: the profile has none.
func fixedWindowSlots(profile string) int {
	p, err := flowctl.ProfileByName(profile)
	if err != nil {
		return 0 // Normalize says so
	}
	return (4*p.Congestion.Fixed() + 2) / 3
}

// SocketPath is where the control socket is unless configured: $EDGE_SOCKET, else ipc.DefaultSocket.
func SocketPath() string {
	if p := os.Getenv(ipc.SocketEnv); p != "" {
		return p
	}
	return ipc.DefaultSocket
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c *Config) checkLinks(p *problems) {
	p.check(len(c.Links) > 0, "link", "no link is configured; name at least one interface, as in: edged --link eth1, "+
		"or a UDP port, as in: edged --listen :9470")
	seen, lanes := map[string]bool{}, 0
	for _, l := range c.Links {
		lanes += min(max(l.Lanes, 1), linkdrv.MaxLanes)
		p.check(l.Name != "", "link.name", "a [[link]] has no name")
		if (l.Listen != "") || l.Driver == linkdrv.KindIP {
			c.checkIPLink(p, &l)
		} else {
			p.check(l.Congestion == "", "link.congestion", "%q is an interface, whose congestion control is that of "+
				"the profile: leave congestion out", l.Name)
			p.check(l.ECN == "" && l.DSCP == 0, "link.ecn", "%q is an interface, whose frames no router sees: leave "+
				"ecn and dscp out", l.Name)
			p.check(len(l.Name) <= maxIfName, "link.name", "%q is longer than an interface name can be (%d bytes)",
				l.Name, maxIfName)
		}
		p.check(l.Lanes >= 1 && l.Lanes <= linkdrv.MaxLanes, "link.lanes", "%d of %q is outside 1..%d", l.Lanes,
			l.Name, linkdrv.MaxLanes)
		p.check(l.Lanes == 1 || l.Listen != "", "link.lanes", "%q is an interface, and only IP links have lanes: "+
			"leave lanes out", l.Name)
		for k := range min(max(l.Lanes, 1), linkdrv.MaxLanes) {
			name := l.Lane(k).Name
			p.check(!seen[name], "link.name", "%q is listed twice", name)
			seen[name] = true
		}
		p.check(l.Weight > 0 && l.Weight < 1e6, "link.weight", "%v of %q is not a positive number", l.Weight, l.Name)
		p.oneOf("link.driver", l.Driver, append([]string{""}, linkdrv.Kinds()...))
		p.check(l.Slots >= 0 && l.Slots <= 1<<16, "link.slots", "%d of %q is outside 0..65536", l.Slots, l.Name)
	}
	p.check(lanes <= engine.MaxLinks, "link", "%d links, of which each lane is one; at most %d can be used", lanes,
		engine.MaxLinks)
}

// Lane returns what the shard knows of the k-th lane of a link: the first has its name, the others a number behind it.
func (l *Link) Lane(k int) Link {
	lane := *l
	if k > 0 {
		lane.Name = fmt.Sprintf("%s/%d", l.Name, k)
	}
	return lane
}

// Values of Link.ECN.
const (
	ECNAuto = "auto"
	ECNOff  = "off"
)

// maxLinkName bounds the names of IP links: they stand in metrics and tables.
const maxLinkName = 64

// checkIPLink checks a link that is a UDP port.
func (c *Config) checkIPLink(p *problems, l *Link) {
	p.check(l.Listen != "", "link.driver", "%q of %q needs listen, such as \":9470\"", linkdrv.KindIP, l.Name)
	if l.Listen != "" {
		at, err := linkdrv.ParseListen(l.Listen)
		p.check(err == nil, "link.listen", "%v", err)
		p.check(int(at.Port())+c.Shards-1 <= math.MaxUint16, "link.listen", "%q: each of %d shards has a port of "+
			"its own, from this one up: choose a smaller one", l.Listen, c.Shards)
		for i := range c.Links {
			other, err := linkdrv.ParseListen(c.Links[i].Listen)
			same := other.Addr() == at.Addr() || other.Addr().IsUnspecified() || at.Addr().IsUnspecified()
			p.check(err != nil || !same || other.Port() <= at.Port() || int(other.Port()) >= int(at.Port())+c.Shards,
				"link.listen", "%q and %q: each of %d shards has a port of its own, from those up: choose ports that "+
					"are further apart", l.Listen, c.Links[i].Listen, c.Shards)
		}
	}
	p.oneOf("link.congestion", l.Congestion, flowctl.IPCongestions())
	p.oneOf("link.ecn", l.ECN, []string{ECNAuto, ECNOff})
	p.check(l.DSCP >= 0 && l.DSCP <= linkdrv.MaxDSCP, "link.dscp", "%d of %q is outside 0..%d", l.DSCP, l.Name,
		linkdrv.MaxDSCP)
	p.check(l.Driver == linkdrv.KindIP, "link.driver", "%q of %q: a link with listen has the driver %q", l.Driver,
		l.Name, linkdrv.KindIP)
	p.check(len(l.Name) <= maxLinkName, "link.name", "%q is longer than %d bytes", l.Name, maxLinkName)
	p.check(c.Security == Encrypted, "link.listen", "%q: IP links are encrypted only: anybody who can reach the port "+
		"could read and write exported memory; leave out security = \"plaintext\"", l.Listen)
	p.check(c.Copy != CopyShuffle, "copy", "%q needs frames at page boundaries, which an IP link (%q) does not give; "+
		"leave copy out", c.Copy, l.Listen)
}

func (c *Config) checkLimits(p *problems) {
	for _, l := range []struct {
		key string
		n   int
	}{
		{"clients", c.Limits.Clients}, {"clients_per_user", c.Limits.ClientsPerUser}, {"regions", c.Limits.Regions},
		{"conns", c.Limits.Conns}, {"dials", c.Limits.Dials}, {"services", c.Limits.Services},
		{"backlog", c.Limits.Backlog}, {"regions_per_user", c.Limits.RegionsPerUser},
		{"regions_total", c.Limits.RegionsTotal}, {"conns_per_user", c.Limits.ConnsPerUser},
		{"ops_per_user", c.Limits.OpsPerUser}, {"requests", c.Limits.Requests},
	} {
		p.check(l.n > 0 && l.n <= MaxLimit, "limits."+l.key, "%d is outside 1..%d", l.n, MaxLimit)
	}
	p.check(c.Limits.Exports > 0 && c.Limits.Exports <= regmem.MaxGrants, "limits.exports", "%d is outside 1..%d",
		c.Limits.Exports, regmem.MaxGrants)
	p.check(c.Limits.Couriers >= 0 && c.Limits.Couriers <= MaxCouriers, "limits.couriers", "%d is outside 0..%d",
		c.Limits.Couriers, MaxCouriers)
	p.check(powerOfTwo(c.Limits.Queue) && c.Limits.Queue >= ipc.MinDepth && c.Limits.Queue <= MaxQueue, "limits.queue",
		"%d is not a power of two from %d to %d", c.Limits.Queue, ipc.MinDepth, MaxQueue)
}

func (l Log) level() (slog.Level, error) {
	var lv slog.Level
	if err := lv.UnmarshalText([]byte(l.Level)); err != nil {
		return 0, fmt.Errorf("%q is not one of debug, info, warn, error", l.Level)
	}
	return lv, nil
}

// Logger builds the logger a normalized Config describes.
func (l Log) Logger(w interface{ Write([]byte) (int, error) }) *slog.Logger {
	lv, _ := l.level()
	o := &slog.HandlerOptions{Level: lv}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func powerOfTwo(n int) bool { return n > 0 && bits.OnesCount(uint(n)) == 1 }

// ParseMode reads the octal permissions of the socket.
func ParseMode(s string) (os.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("%q is not an octal permission such as \"0660\"", s)
	}
	return os.FileMode(n), nil
}

// ParseNodeID reads an identity of hexadecimal digits.
func ParseNodeID(s string) (id engine.NodeID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is not %d hexadecimal digits", s, 2*len(id))
	}
	copy(id[:], b)
	if id == (engine.NodeID{}) {
		return id, errors.New("an identity of zeros is not allowed; choose another, or leave node_id out")
	}
	return id, nil
}

func hostMemory() Size {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 30
	}
	return Size(uint64(si.Totalram) * uint64(si.Unit))
}

// problems collects what is wrong with a configuration.
type problems []error

func (p *problems) check(ok bool, key, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
	}
}

func (p *problems) positive(key string, d time.Duration) {
	p.check(d >= time.Millisecond && d <= time.Hour, key, "%v is outside 1ms..1h", d)
}

func (p *problems) oneOf(key, got string, names []string) {
	if slices.Contains(names, got) {
		return
	}
	hint := ""
	if near := nearest(got, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	p.check(false, key, "%q is not one of %s%s", got, strings.Join(slices.DeleteFunc(slices.Clone(names),
		func(s string) bool { return s == "" }), ", "), hint)
}
