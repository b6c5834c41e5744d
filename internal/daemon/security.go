package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"multiedge/internal/engine"
	"multiedge/internal/identity"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
)

// trust is who this node is and whom it authorises. A nil *trust is that of a plaintext node: nobody and everybody.
type trust struct {
	node    *secure.Node // the engine's, once there is one
	keyFile string       // empty: the key is in memory alone
	made    bool         // by this start, and not said yet
	inline  bool         // no peers file is read
	now     atomic.Pointer[authorised]
	mu      sync.Mutex // over a reading of the file and its taking effect
}

// authorised are the peers in force, with where they were found.
type authorised struct {
	*secure.Peers
	self    secure.PublicKey
	file    string // empty: none
	inline  []Peer // of the configuration
	sources []identity.Source
}

// newTrust reads the key, or makes it, and the peers. It returns the node's identity as well.
func newTrust(cfg *Config, o *Options) (*trust, engine.NodeID, error) {
	if cfg.Security == Plaintext {
		return nil, plainIdentity(cfg), nil
	}
	t := &trust{inline: o.inline}
	var key secure.PrivateKey
	var err error
	if o.Key != nil {
		key = *o.Key
	} else {
		t.keyFile = cfg.KeyFile
		if key, t.made, err = identity.LoadKey(cfg.KeyFile); err != nil {
			return nil, engine.NodeID{}, keyError(err)
		}
	}
	t.node = secure.NewNode(key, nil)
	peers, err := t.read(cfg)
	if err != nil {
		return nil, engine.NodeID{}, err
	}
	t.now.Store(peers)
	t.node.Peers = peers.Peers
	return t, t.node.Public.Node(), nil
}

func keyError(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; run as root, or give another file by --key-file", err)
	}
	return err
}

// read reads the peers that a configuration authorises. They are not in force yet.
func (t *trust) read(cfg *Config) (*authorised, error) {
	a := &authorised{inline: cfg.Peers}
	if t.node != nil {
		a.self = t.node.Public
	}
	if !t.inline {
		a.file = cfg.PeersFile
	}
	return a, a.load()
}

// load fills a from its file and its part of the configuration.
func (a *authorised) load() (err error) {
	var sources []identity.Source
	if a.file != "" {
		peers, err := identity.ReadPeers(a.file)
		if err != nil {
			return err
		}
		sources = append(sources, identity.Source{Name: a.file, Peers: a.others(peers)})
	}
	inline, err := parsePeers(a.inline)
	if err != nil {
		return err
	}
	a.sources = append(sources, identity.Source{Name: "configuration", Peers: a.others(inline)})
	a.Peers, err = identity.Merge(a.sources...)
	return err
}

// others leaves out the node itself, which may be in a file that all nodes share.
func (a *authorised) others(peers []secure.Peer) []secure.Peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p secure.Peer) bool { return p.Key == a.self })
}

func parsePeers(list []Peer) (out []secure.Peer, err error) {
	for _, p := range list {
		key, err := secure.ParsePublicKey(p.Key)
		if err != nil {
			return nil, fmt.Errorf("peer %q: %w", p.Name, err)
		}
		out = append(out, secure.Peer{Name: p.Name, Key: key})
	}
	return out, nil
}

// secureNode returns the identity for one shard, whose thread alone uses it; nil in plaintext.
func (t *trust) secureNode() *secure.Node {
	if t == nil || t.node == nil {
		return nil
	}
	own := *t.node
	return &own
}

// keyless reports that no key file is used.
func (t *trust) keyless() bool { return t == nil || t.keyFile == "" }

// setPeers makes peers the authorised ones. Sessions with others end. The caller holds trust.mu.
func (d *Daemon) setPeers(a *authorised) error {
	if err := d.everyShard(func(s *shard, now mono.Time) { s.eng.SetPeers(now, a.Peers) }); err != nil {
		return err
	}
	d.trust.node.Peers = a.Peers
	d.trust.now.Store(a)
	return nil
}

// reloadTrust makes the peers of a new configuration the authorised ones.
func (d *Daemon) reloadTrust(cfg *Config) error {
	if d.trust == nil {
		return nil
	}
	d.trust.mu.Lock()
	defer d.trust.mu.Unlock()
	a, err := d.trust.read(cfg)
	if err != nil {
		return err
	}
	return d.setPeers(a)
}

var errPlaintext = errors.New("this node runs in plaintext and authorises nobody in particular; start it with security = \"encrypted\"")

// ReloadPeers reads the peers file again and makes it effective, with the rest of the configuration as it is. It returns how many peers are
// authorised now. A file that cannot be used changes nothing.
func (d *Daemon) ReloadPeers() (int, error) {
	if d.trust == nil {
		return 0, errPlaintext
	}
	d.trust.mu.Lock()
	defer d.trust.mu.Unlock()
	old := d.trust.now.Load()
	a := &authorised{self: old.self, file: old.file, inline: old.inline}
	if err := a.load(); err != nil {
		return 0, err
	}
	if err := d.setPeers(a); err != nil {
		return 0, err
	}
	d.log.Info("authorised peers were read again", "peers", len(a.List()), "file", a.file)
	return len(a.List()), nil
}

// SetPeers makes the given peers the authorised ones, instead of all before: for an embedded node, whose program decides.
func (d *Daemon) SetPeers(list []Peer) error {
	if d.trust == nil {
		return errPlaintext
	}
	d.trust.mu.Lock()
	defer d.trust.mu.Unlock()
	old := d.trust.now.Load()
	a := &authorised{self: old.self, file: old.file, inline: list}
	if err := a.load(); err != nil {
		return err
	}
	return d.setPeers(a)
}

// PublicKey returns what peers authorise; empty in plaintext.
func (d *Daemon) PublicKey() string {
	if d.trust == nil {
		return ""
	}
	return d.trust.node.Public.String()
}

// announce says at start and at reload what protects the frames.
func (d *Daemon) announce() {
	switch {
	case d.trust == nil && d.inMemory():
		d.log.Debug("frames are plaintext and stay in this process")
	case d.trust == nil:
		d.log.Warn("PLAINTEXT: frames are neither encrypted nor authenticated, and whoever reaches a link can read and write exported memory. For trusted wires alone; " +
			"leave out security = \"plaintext\" and --plaintext to protect them")
	default:
		key := d.PublicKey()
		if d.trust.made {
			d.trust.made = false
			d.log.Info("a key was made for this node", "key_file", d.trust.keyFile)
		}
		now := d.trust.now.Load()
		if n := len(now.List()); n > 0 {
			d.log.Info("frames are encrypted", "public_key", key, "peers", n, "peers_file", now.file)
			return
		}
		d.log.Warn("frames are encrypted, and no peer is authorised yet: on each peer run the command, and the other way round", "public_key", key,
			"command", "edgectl peers add "+key+" "+d.cfg.Name, "peers_file", now.file)
	}
}

// inMemory reports that the links are no interfaces: frames do not leave the process.
func (d *Daemon) inMemory() bool { return d.watch == nil }

// checkSecurity checks what can be checked without files.
func (c *Config) checkSecurity(p *problems) {
	p.oneOf("security", c.Security, []string{Encrypted, Plaintext})
	if c.Security == Encrypted {
		p.check(c.NodeID == "", "node_id", "with security = \"encrypted\" a node is who its key says, so that nobody can pretend to be it: leave node_id out (edgectl status shows the identity)")
		p.check(c.KeyFile != "", "key_file", "there is no home directory to keep the key in: name a file")
	}
	list, err := parsePeers(c.Peers)
	if err == nil {
		_, err = secure.NewPeers(list...)
	}
	p.check(err == nil, "peer", "%v", err)
}

// CheckFiles looks up the group and reads the key and the peers as a start would, without making a key. What a start would find wrong is the error.
func (c *Config) CheckFiles() error {
	_, err := c.groupID()
	if err != nil || c.Security == Plaintext {
		return err
	}
	_, err = identity.ReadKey(c.KeyFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		err = nil // it will be made; or it is the daemon's user's, and whoever checks is another
	}
	_, peersErr := new(trust).read(c)
	return errors.Join(err, peersErr)
}
