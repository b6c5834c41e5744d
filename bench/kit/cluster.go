package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/identity"
	"multiedge/internal/ipc"
	"multiedge/internal/lab"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
)

// ClusterSpec describes hosts on this machine and the transport on them.
type ClusterSpec struct {
	Lab       lab.Spec
	Scheduler string
	Checksum  string
	Profile   string
	Shards    int // of each daemon; 0: one
	Receivers int // of each shard
	// of links; empty: what the daemon chooses, or frames alone where Lab has rates: such links stand for NICs
	Driver   string
	Poll     string    // how daemons and applications wait
	Copy     string    // how payloads reach their place: daemon.Config.Copy, or CopyDefault
	Weights  []float64 // of links, for wsrr and wd; empty: their rates, if they have any
	Security string    // "encrypted" (default) or "plaintext"
	Embedded bool      // no daemons: the transport runs in the benchmark processes
	// IP links listen at all addresses of their hosts, so that these may change: with Lab.Medium Routed and one link
	AllAddresses bool
	Allow        []string  // networks to which each peer is confined
	Lanes        int       // of each IP link: with Lab.Medium Routed; 0: one
	Nobody       bool      // daemons run as an ordinary user without any capability: with Lab.Medium Routed
	Pin          bool      // give each host its own share of the processors
	Log          string    // level of the daemons' log to standard error; empty: errors only, when they fail
	Limits       string    // lines of TOML for the daemons' [limits]
	Self         []string  // how to run this program; empty: the executable
	Config       string    // TOML for every daemon, keys of the top level first: what the fields above do not say
	LogTo        io.Writer // where the daemons' log goes as well when Log is set; nil: standard error
}

// CopyDefault is the name under which results are kept of what is fastest, where ways to copy are compared.
const CopyDefault = "default"

// WayToCopy is what the transport is told.
func (s *ClusterSpec) WayToCopy() string {
	if s.Copy == CopyDefault {
		return ""
	}
	return s.Copy
}

// Cluster is a running lab with a daemon in each host.
type Cluster struct {
	spec    ClusterSpec
	lab     *lab.Lab
	dir     string
	daemons []*Process
}

// NewCluster builds the lab and starts the daemons. When it returns an error, nothing is left.
func NewCluster(ctx context.Context, spec ClusterSpec) (*Cluster, error) {
	c := &Cluster{spec: spec}
	if err := Try(func() { c.build(ctx) }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) build(ctx context.Context) {
	spec := &c.spec
	if spec.Driver == "" && len(spec.Lab.Rates) > 0 {
		spec.Driver = linkdrv.KindAlone
	}
	if c.Encrypted() && spec.Checksum != "" {
		Fail("checksum %q: checksums are of plaintext, encrypted frames are protected as a whole; "+
			"leave out --checksum, or add --security plaintext", spec.Checksum)
	}
	if len(spec.Self) == 0 {
		spec.Self = []string{Get(os.Executable())}
	}
	c.dir = Get(os.MkdirTemp("", "edgebench-"))
	c.lab = Get(lab.New(ctx, spec.Lab))
	c.makeKeys()
	if spec.Embedded {
		return
	}
	if spec.Nobody {
		c.giveFiles()
	}
	for i := range c.lab.Hosts() {
		Doing(func() { c.daemons = append(c.daemons, c.launchDaemon(i)) }, "daemon of host %d", i)
	}
	for i := range c.daemons {
		Doing(func() { c.waitReady(ctx, i) }, "daemon of host %d", i)
	}
}

// launchDaemon starts a host's daemon, or a hidden subcommand that becomes it.
func (c *Cluster) launchDaemon(host int, by ...string) *Process {
	if c.spec.Nobody {
		by = append(by, commandNobody)
	}
	return c.launch(host, false, append(by, commandDaemon, c.Config(host))...)
}

// Close removes everything: processes, hosts, sockets.
func (c *Cluster) Close() error {
	var err error
	for _, d := range c.daemons {
		d.Stop()
	}
	if c.lab != nil {
		err = c.lab.Close()
	}
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// Spec returns how the cluster was built, with what was not chosen filled in.
func (c *Cluster) Spec() ClusterSpec { return c.spec }

// Lab returns the hosts.
func (c *Cluster) Lab() *lab.Lab { return c.lab }

// Report describes the lab for a result file.
func (c *Cluster) Report() *report.Lab {
	s := c.spec.Lab
	return &report.Lab{
		Hosts: c.lab.Hosts(), Links: c.lab.Links(), MTU: cmp.Or(s.MTU, 9000), Rates: c.Rates(), Loss: s.Loss,
		Duplicate: s.Dup, Corrupt: s.Corrupt,
		Reorder: s.Reorder, Unprivileged: lab.Unprivileged(),
	}
}

// Rates returns the rate of each link; nil when none is limited.
func (c *Cluster) Rates() []string {
	if r := c.spec.Lab.Rates; len(r) == 1 {
		return slices.Repeat(r, c.lab.Links())
	}
	return c.spec.Lab.Rates
}

// Socket is the control socket of a host's daemon.
func (c *Cluster) Socket(host int) string { return filepath.Join(c.dir, fmt.Sprintf("h%d.sock", host)) }

// Config is what a host's daemon is started with, in TOML.
func (c *Cluster) Config(host int) string {
	var b strings.Builder
	h := c.lab.Host(host)
	fmt.Fprintf(&b, "name = %q\nsocket = %q\n", h.Name(), c.Socket(host))
	for key, value := range map[string]string{"scheduler": c.spec.Scheduler, "checksum": c.spec.Checksum,
		"profile": c.spec.Profile, "poll": c.spec.Poll, "driver": c.spec.Driver, "security": c.spec.Security,
		"copy": c.spec.WayToCopy()} {
		if value != "" {
			fmt.Fprintf(&b, "%s = %q\n", key, value)
		}
	}
	if c.Encrypted() {
		fmt.Fprintf(&b, "key_file = %q\npeers_file = %q\n", c.KeyFile(host), c.PeersFile(host))
	}
	fmt.Fprintf(&b, "shards = %d\nreceivers = %d\n", max(c.spec.Shards, 1), c.spec.Receivers)
	b.WriteString(c.spec.Config)
	fmt.Fprintf(&b, "[log]\nlevel = %q\n[limits]\n%s\n", cmp.Or(c.spec.Log, "error"), c.spec.Limits)
	weights := c.weights()
	for i, name := range h.LinkNames() {
		fmt.Fprintf(&b, "[[link]]\nname = %q\n", name)
		if c.spec.Lab.Medium == lab.Routed {
			fmt.Fprintf(&b, "listen = %q\nlanes = %d\n", c.listen(host, i), max(c.spec.Lanes, 1))
		}
		if i < len(weights) {
			fmt.Fprintf(&b, "weight = %g\n", weights[i])
		}
	}
	return b.String()
}

// Endpoint is where a host's IP link is.
func (c *Cluster) Endpoint(host, link int) netip.AddrPort {
	return netip.AddrPortFrom(c.lab.Host(host).IP(link), ipPort)
}

// listen is where a host's IP link listens.
func (c *Cluster) listen(host, link int) string {
	if c.spec.AllAddresses {
		return fmt.Sprintf(":%d", ipPort)
	}
	return c.Endpoint(host, link).String()
}

// ipPort is the UDP port of IP links.
const ipPort = 9470

// weights are those given, or the links' rates in units of the slowest.
func (c *Cluster) weights() []float64 {
	if len(c.spec.Weights) > 0 {
		return c.spec.Weights
	}
	var w []float64
	slowest := 0.0
	for _, r := range c.Rates() {
		bits, err := report.ParseRate(r)
		if err != nil {
			return nil
		}
		w = append(w, bits)
		if slowest == 0 || bits < slowest {
			slowest = bits
		}
	}
	for i := range w {
		w[i] /= slowest
	}
	return w
}

// CPUs returns the processors a host's processes are bound to; nil: any.
func (c *Cluster) CPUs(host int) []int {
	n, hosts := runtime.NumCPU(), c.lab.Hosts()
	if !c.spec.Pin || n < hosts {
		return nil
	}
	var cpus []int
	for i := n * host / hosts; i < n*(host+1)/hosts; i++ {
		cpus = append(cpus, i)
	}
	return cpus
}

// waitReady waits until a host's daemon serves clients.
func (c *Cluster) waitReady(ctx context.Context, host int) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	d := c.daemons[host]
	for {
		conn, err := ipc.Dial(ctx, c.Socket(host))
		if err == nil {
			Check(conn.Close())
			return
		}
		select {
		case <-d.ended:
			Check(d.Failure())
		case <-ctx.Done():
			Fail("does not answer: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Dir is a directory of the cluster's own, which Close removes.
func (c *Cluster) Dir() string { return c.dir }

// Daemon returns the present daemon of a host.
func (c *Cluster) Daemon(host int) *Process { return c.daemons[host] }

// StartDaemon starts a host's daemon again after the one before has ended, and returns when it serves clients. It ends
// by Check if it cannot.
func (c *Cluster) StartDaemon(ctx context.Context, host int) {
	if !c.Daemon(host).HasEnded() {
		Fail("kit: the host's daemon still runs: end it first")
	}
	c.daemons[host] = c.launchDaemon(host)
	c.waitReady(ctx, host)
}

// ConfineDaemon replaces a host's daemon by one that CommandConfined or CommandGrouped, with its first argument,
// starts. It ends by Check if it cannot.
func (c *Cluster) ConfineDaemon(ctx context.Context, host int, command, argument string) {
	c.daemons[host].Stop()
	c.daemons[host] = c.launchDaemon(host, command, argument)
	c.waitReady(ctx, host)
}

// Encrypted reports whether frames are encrypted.
func (c *Cluster) Encrypted() bool { return c.spec.Security != config.Plaintext }

// KeyFile is a host's private key.
func (c *Cluster) KeyFile(host int) string { return filepath.Join(c.dir, fmt.Sprintf("h%d.key", host)) }

// PeersFile is a host's file of authorised peers.
func (c *Cluster) PeersFile(host int) string {
	return filepath.Join(c.dir, fmt.Sprintf("h%d.peers", host))
}

// makeKeys gives each host a key and writes the others' keys to its peers file, as an administrator does with edgectl
// key and edgectl peers.
func (c *Cluster) makeKeys() {
	if !c.Encrypted() {
		return
	}
	hosts := make([]secure.Peer, c.lab.Hosts())
	for i := range hosts {
		key := secure.NewPrivateKey()
		Check(identity.CreateKey(c.KeyFile(i), key))
		hosts[i] = secure.Peer{Name: c.lab.Host(i).Name(), Key: key.Public()}
		if c.spec.Lab.Medium == lab.Routed {
			var at []string
			for link := range c.lab.Links() {
				at = append(at, c.Endpoint(i, link).String())
			}
			hosts[i].Endpoints, hosts[i].Allow = strings.Join(at, ","), strings.Join(c.spec.Allow, ",")
		}
	}
	for i := range hosts {
		for j, peer := range hosts {
			if i != j {
				Get(identity.AddPeer(c.PeersFile(i), peer))
			}
		}
	}
}
