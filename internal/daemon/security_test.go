package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
)

// book is a log that can be read.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns what was logged since the last take.
func (b *book) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// starter starts daemons whose links are in memory and pass for interfaces, with a log.
func starter(t *testing.T) (start func(config.Config) (*Daemon, error), log *book) {
	start, _, log = stopper(t)
	return start, log
}

// stopper is starter with what stops the latest daemon.
func stopper(t *testing.T) (start func(config.Config) (*Daemon, error), stop func(), log *book) {
	log = new(book)
	o := Options{Log: slog.New(slog.NewTextHandler(log, nil)), Open: memoryLink, Watch: func(ctx context.Context,
		_ func(linkdrv.Event)) error {
		<-ctx.Done()
		return nil
	}}
	return func(cfg config.Config) (*Daemon, error) {
		cfg.Links, cfg.Socket = []config.Link{{Name: "mem"}}, filepath.Join(t.TempDir(), "s")
		d, err := New(cfg, o)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		stop = func() { cancel(); <-done }
		t.Cleanup(stop)
		<-d.Ready()
		return d, nil
	}, func() { stop() }, log
}

// inForce is what the engine was given.
func inForce(t *testing.T, d *Daemon) (names string) {
	t.Helper()
	if err := d.shard.Do(func(mono.Time) {
		for _, p := range d.trust.node.Peers.List() {
			names += p.Name
		}
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFirstStartMakesTheKey(t *testing.T) {
	start, stop, log := stopper(t)
	cfg := keyed(t, config.Config{Name: "alpha"})
	d, err := start(cfg)
	must(t, err)
	key, err := identity.ReadKey(cfg.KeyFile)
	must(t, err)
	if _, id := d.Node(); d.PublicKey() != key.Public().String() || d.node != key.Public().Node() ||
		id != d.node.String() {
		t.Errorf("key %s, node %s", d.PublicKey(), id)
	}
	said := log.take()
	for _, want := range []string{"level=WARN", "no peer is authorised", "edgectl peers add " + d.PublicKey() +
		" alpha", cfg.PeersFile, cfg.KeyFile} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing is said about %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, key.Text()) {
		t.Error("the private key is in the log")
	}
	if _, err := start(cfg); err == nil || !strings.Contains(err.Error(), "another daemon (process ") ||
		!strings.Contains(err.Error(), cfg.KeyFile) || !strings.Contains(err.Error(), "edgectl key new") {
		t.Errorf("a second daemon with the same key, of another socket: %v", err)
	}
	stop()
	again, err := start(cfg)
	if err != nil || again.node != d.node {
		t.Errorf("after a restart the node is %v, %v", again, err)
	}
	if said := log.take(); strings.Contains(said, "a key was made") {
		t.Errorf("the second start says: %s", said)
	}
}

func TestBadIdentityFilesAreExplained(t *testing.T) {
	start, _ := starter(t)
	for _, tc := range []struct {
		name   string
		damage func(cfg *config.Config) error
		want   string
	}{
		{"key readable by others", func(c *config.Config) error {
			if err := identity.CreateKey(c.KeyFile, secure.NewPrivateKey()); err != nil {
				return err
			}
			return os.Chmod(c.KeyFile, 0o644)
		}, "chmod 600"},
		{"no directory for the key", func(c *config.Config) error { c.KeyFile = "/dev/null/key"; return nil },
			"/dev/null/key"},
		{"malformed peers", func(c *config.Config) error { return os.WriteFile(c.PeersFile, []byte("beta\n"), 0o644) },
			"peers:1"},
		{"peers in conflict", func(c *config.Config) error {
			c.Peers = []config.Peer{{Name: "beta", Key: secure.PrivateKey{1}.Public().String()}}
			return os.WriteFile(c.PeersFile, []byte(secure.PrivateKey{2}.Public().String()+" beta\n"), 0o644)
		}, "two keys"},
	} {
		cfg := keyed(t, config.Config{})
		must(t, tc.damage(&cfg))
		_, err := start(cfg)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if checked := cfg.CheckFiles(); tc.name != "no directory for the key" && (checked == nil ||
			checked.Error() != err.Error()) {
			t.Errorf("%s: a check says %v", tc.name, checked)
		}
	}
	cfg := keyed(t, config.Config{})
	if err := cfg.CheckFiles(); err != nil {
		t.Errorf("before the first start: %v", err)
	}
	if _, err := os.Stat(cfg.KeyFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a check made a key: %v", err)
	}
}

// Both sources of peers count, and both are read again; what cannot be read changes nothing.
func TestPeersAreReloaded(t *testing.T) {
	start, log := starter(t)
	cfg := keyed(
		t,
		config.Config{Name: "alpha", Peers: []config.Peer{{Name: "x", Key: secure.PrivateKey{1}.Public().String()}}},
	)
	d, err := start(cfg)
	must(t, err)
	cfg.Links, cfg.Socket = d.cfg.Links, d.cfg.Socket
	check := func(want string) {
		t.Helper()
		snap := snapshot(t, d)
		listed := ""
		for _, p := range snap.Authorised {
			listed += p.Name
		}
		if got := inForce(t, d); got != want || listed != want || snap.Status.Authorised != len(want) {
			t.Errorf("in force %q, listed %q, %d in status; want %q", got, listed, snap.Status.Authorised, want)
		}
	}
	check("x")
	if _, err := identity.AddPeer(cfg.PeersFile, secure.Peer{Name: "y",
		Key: secure.PrivateKey{2}.Public()}); err != nil {
		t.Fatal(err)
	}
	// all nodes may share a file
	if _, err := identity.AddPeer(cfg.PeersFile, secure.Peer{Name: "alpha", Key: d.trust.node.Public}); err != nil {
		t.Fatal(err)
	}
	check("x")
	snap, _ := d.Snapshot()
	if text := about(d.shown.inspector.Facts(snap), "peers file"); !strings.Contains(text, "not read again") {
		t.Errorf("doctor on a changed file: %s", text)
	}
	if n, err := d.ReloadPeers(); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	check("yx")
	cfg.Peers = []config.Peer{{Name: "z", Key: secure.PrivateKey{3}.Public().String()}}
	must(t, d.Reload(cfg))
	check("yz")
	cfg.Security = config.Plaintext
	if err := d.Reload(cfg); err == nil || !strings.Contains(err.Error(), "restart only: security") {
		t.Errorf("to plaintext while running: %v", err)
	}
	cfg.Security = config.Encrypted
	must(t, os.WriteFile(cfg.PeersFile, []byte("nonsense\n"), 0o644))
	cfg.Peers = nil
	if err := d.Reload(cfg); err == nil || !strings.Contains(err.Error(), "peers:1") {
		t.Errorf("malformed: %v", err)
	}
	if _, err := d.ReloadPeers(); err == nil {
		t.Error("a malformed file was accepted")
	}
	check("yz")
	must(t, os.Truncate(cfg.PeersFile, 0))
	for range 2 { // empty, then gone
		if _, err := d.ReloadPeers(); err == nil {
			t.Error("a file that lost its peers was accepted")
		}
		check("yz")
		os.Remove(cfg.PeersFile)
	}
	if strings.Contains(log.take(), "PLAINTEXT") {
		t.Error("an encrypted node says that it is not")
	}
}

func about(list []inspect.Finding, what string) (text string) {
	for _, f := range list {
		if f.About == what {
			text += f.Severity + " " + f.Text + " " + f.Remedy + "\n"
		}
	}
	return text
}

func TestPlaintextIsLoud(t *testing.T) {
	start, log := starter(t)
	d, err := start(plaintext(config.Config{Name: "alpha"}))
	must(t, err)
	loud := func(when string) {
		t.Helper()
		if said := log.take(); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "PLAINTEXT") {
			t.Errorf("%s it says: %s", when, said)
		}
	}
	loud("at start")
	must(t, d.Reload(d.Config()))
	loud("at reload")
	snap, err := d.Snapshot()
	if err != nil || snap.Status.Security != config.Plaintext || snap.Status.PublicKey != "" ||
		snap.Status.Checksum != "full" {
		t.Errorf("%+v %v", snap.Status, err)
	}
	if text := about(d.shown.inspector.Facts(snap), "security"); !strings.HasPrefix(
		text,
		inspect.FindingWarning+" PLAINTEXT",
	) {
		t.Errorf("doctor: %q", text)
	}
	if _, err := d.ReloadPeers(); err == nil || !strings.Contains(err.Error(), "plaintext") {
		t.Errorf("peers of a plaintext node: %v", err)
	}
}

func TestReloadRequest(t *testing.T) {
	a, b := nodesIn(t, config.Encrypted, 1, nil)
	c := attach(t, a, 64)
	var r ReloadReport
	m := c.must(&ipc.Message{Kind: ipc.KindReload})
	if err := json.Unmarshal(m.Body, &r); err != nil || r.Authorised != 1 {
		t.Errorf("%v: %s", err, m.Body)
	}
	if err := a.Daemon().SetPeers(nil); err != nil || inForce(t, a.d) != "" {
		t.Errorf("%q is authorised: %v", inForce(t, a.d), err)
	}
	key := b.Daemon().PublicKey()
	if err := a.Daemon().SetPeers([]config.Peer{{Name: "b", Key: key}, {Name: "c", Key: key}}); err == nil ||
		inForce(t, a.d) != "" {
		t.Errorf("two peers of one key: %v", err)
	}
	p, _ := nodes(t, 1, nil)
	attach(t, p, 64).fails(&ipc.Message{Kind: ipc.KindReload}, ipc.CodeInvalid)
}
