package edge

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/lab"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
)

// testHost is a daemon with a control socket in this process, on a network in memory. It can be stopped and started
// again under its clients.
type testHost struct {
	t      *testing.T
	fabric *Fabric
	cfg    config.Config
	key    *secure.PrivateKey
	place  *lab.Host // whose real links it uses; nil: fabric
	d      *daemon.Daemon
	cancel context.CancelFunc
	done   chan error
}

func newHost(t *testing.T, f *Fabric, name string, change func(*config.Config)) *testHost {
	t.Helper()
	h := &testHost{t: t, fabric: f, cfg: config.Config{
		Security: config.Plaintext,
		Name:     name, Socket: filepath.Join(t.TempDir(), name+".sock"), Poll: "block",
		Timing: config.Timing{DialTimeout: 5 * time.Second, HelloTime: 50 * time.Millisecond},
		Links:  []config.Link{{Name: "mem0"}},
		Limits: config.Limits{Couriers: 64},
	}}
	if change != nil {
		change(&h.cfg)
	}
	h.start()
	t.Cleanup(h.stop)
	return h
}

func (h *testHost) start() {
	h.t.Helper()
	var err error
	if h.place != nil {
		err = h.place.Do(func() (err error) {
			h.d, err = daemon.New(h.cfg, daemon.Options{Key: h.key})
			return err
		})
	} else {
		open := func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) { return h.fabric.plug(l.Name) }
		h.d, err = daemon.New(h.cfg, daemon.Options{Open: open})
	}
	must(h.t, err)
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	h.done = make(chan error, 1)
	go func() { h.done <- h.d.Run(ctx) }()
	<-h.d.Ready()
}

func (h *testHost) stop() {
	if h.cancel == nil {
		return
	}
	h.cancel()
	h.cancel = nil
	if err := <-h.done; err != nil {
		h.t.Errorf("daemon %s: %v", h.cfg.Name, err)
	}
}

// open attaches a Device that is closed with the test.
func (h *testHost) open(cfg Config) *Device {
	h.t.Helper()
	cfg.Socket = h.cfg.Socket
	d, err := Open(testContext(h.t), cfg)
	must(h.t, err)
	h.t.Cleanup(func() { d.Close() })
	return d
}

// eventually polls a condition of the world that no channel announces.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// charged is what all clients of a daemon are charged for.
func charged(t *testing.T, h *testHost) uint64 {
	t.Helper()
	s, err := h.d.Snapshot()
	must(t, err)
	return s.Status.ChargedBytes
}
