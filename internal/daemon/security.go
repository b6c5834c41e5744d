package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/shard"
)

// trust is who this node is and whom it authorises. A nil *trust is that of a plaintext node: nobody and everybody.
type trust struct {
	node      *secure.Node // the engine's, once there is one
	keyFile   string       // empty: the key is in memory alone
	made      bool         // by this start, and not said yet
	inline    bool         // no peers file is read
	endpoints endpoints    // of peers over IP
	now       atomic.Pointer[config.Authorised]
	mu        sync.Mutex // over a reading of the file and its taking effect
}

// newTrust reads the key, or makes it, and the peers. It returns the node's identity as well.
func newTrust(cfg *config.Config, o *Options) (*trust, engine.NodeID, error) {
	if cfg.Security == config.Plaintext {
		return nil, config.PlainIdentity(cfg), nil
	}
	t := &trust{inline: o.inline, endpoints: newEndpoints()}
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
	peers, err := cfg.ReadPeers(t.node.Public, t.inline, nil)
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

// lockKey takes the key file for this daemon alone.
func (d *Daemon) lockKey() (err error) {
	if d.trust == nil || d.trust.keyFile == "" {
		return nil
	}
	d.keyLock, err = identity.LockKey(d.trust.keyFile)
	return err
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
func (d *Daemon) setPeers(a *config.Authorised) error {
	if err := d.everyShard(func(s *shard.Shard, now mono.Time) { s.Engine().SetPeers(now, a.Peers) }); err != nil {
		return err
	}
	d.trust.node.Peers = a.Peers
	d.trust.now.Store(a)
	d.trust.endpoints.kick()
	return nil
}

// reloadTrust makes the peers of a new configuration the authorised ones.
func (d *Daemon) reloadTrust(cfg *config.Config) error {
	if d.trust == nil {
		return nil
	}
	d.trust.mu.Lock()
	defer d.trust.mu.Unlock()
	a, err := cfg.ReadPeers(d.trust.node.Public, d.trust.inline, d.trust.now.Load())
	if err != nil {
		return err
	}
	return d.setPeers(a)
}

var errPlaintext = errors.New("this node runs in plaintext and authorises nobody in particular; start it with " +
	"security = \"encrypted\"")

// ReloadPeers reads the peers file again and makes it effective, with the rest of the configuration as it is. It
// returns how many peers are authorised now. A file that cannot be used changes nothing.
func (d *Daemon) ReloadPeers() (int, error) {
	if d.trust == nil {
		return 0, errPlaintext
	}
	d.trust.mu.Lock()
	defer d.trust.mu.Unlock()
	old := d.trust.now.Load()
	a, err := old.Reread(old.Inline)
	if err != nil {
		return 0, err
	}
	if err := d.setPeers(a); err != nil {
		return 0, err
	}
	d.log.Info("authorised peers were read again", "peers", len(a.List()), "file", a.File)
	d.tell(&Event{Kind: EventPeers, Text: fmt.Sprintf("%d authorised", len(a.List()))})
	return len(a.List()), nil
}

// SetPeers makes the given peers the authorised ones, instead of all before: for an embedded node, whose program
// decides.
func (d *Daemon) SetPeers(list []config.Peer) error {
	if d.trust == nil {
		return errPlaintext
	}
	d.trust.mu.Lock()
	defer d.trust.mu.Unlock()
	old := d.trust.now.Load()
	a, err := old.Reread(list)
	if err != nil {
		return err
	}
	return d.setPeers(a)
}

// identity is what protects the frames, for those who look; nil: nothing does.
func (d *Daemon) identity() *inspect.Identity {
	if d.trust == nil {
		return nil
	}
	return &inspect.Identity{Key: d.PublicKey(), KeyFile: d.trust.keyFile, Peers: d.trust.now.Load()}
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
		d.log.Warn("PLAINTEXT: frames are neither encrypted nor authenticated, and whoever reaches a link can read " +
			"and write exported memory. For trusted wires alone; " +
			"leave out security = \"plaintext\" and --plaintext to protect them")
	default:
		key := d.PublicKey()
		if d.trust.made {
			d.trust.made = false
			d.log.Info("a key was made for this node", "key_file", d.trust.keyFile)
		}
		now := d.trust.now.Load()
		if n := len(now.List()); n > 0 {
			d.log.Info("frames are encrypted", "public_key", key, "peers", n, "peers_file", now.File)
			return
		}
		d.log.Warn("frames are encrypted, and no peer is authorised yet: on each peer run the command, and the other "+
			"way round", "public_key", key,
			"command", "edgectl peers add "+key+" "+d.cfg.Name, "peers_file", now.File)
	}
}

// inMemory reports that the links are no interfaces: frames do not leave the process.
func (d *Daemon) inMemory() bool { return d.keeper.watchLinks == nil }

// ReloadReport answers a reload request.
type ReloadReport struct {
	Schema     int `json:"schema"`
	Authorised int `json:"peers_authorised"`
}

// reload reads the authorised peers again.
func (ss *controlConn) reload(m *ipc.Message) (*ipc.Message, error) {
	if err := ss.mayAdminister("make the daemon read its peers again"); err != nil {
		return nil, err
	}
	n, err := ss.d.ReloadPeers()
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	reply := m.Reply()
	reply.Body, err = json.Marshal(ReloadReport{Schema: inspect.StatusSchema, Authorised: n})
	return reply, err
}
