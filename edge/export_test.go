package edge

import (
	"syscall"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/ipc"
	"multiedge/internal/lab"
	"multiedge/internal/secure"
)

// What tests of the packages above this one use of its tests: they are in package edge_test.

type (
	TestHost = testHost
	Fake     = fake
)

var (
	NewHost    = newHost
	NewFake    = newFake
	OnBoth     = onBoth
	ShareOn    = shareOn
	PairOn     = pairOn
	StartChild = startChild
	Modes      = modes
	Charged    = charged
	Lacks      = lacks
)

// Children are what this program does instead of tests if its environment has the variable, whose value they get.
var Children = map[string]func(string) error{}

const ChildDaemonEnv, ChildLinkEnv = childDaemonEnv, childLinkEnv

func (h *testHost) Open(cfg Config) *Device { return h.open(cfg) }
func (h *testHost) Start()                  { h.start() }
func (h *testHost) Stop()                   { h.stop() }
func (h *testHost) Daemon() *daemon.Daemon  { return h.d }
func (h *testHost) Config() *config.Config  { return &h.cfg }
func (f *fake) Open(cfg Config) *Device     { d, _ := f.open(cfg); return d }
func (f *fake) SetHold(hold bool)           { f.setHold(hold) }
func (f *fake) Release()                    { f.release() }
func (f *fake) Moved() int64                { return f.moved.Load() }
func (f *fake) SetFail(s ipc.Status)        { f.mu.Lock(); defer f.mu.Unlock(); f.fail = s }
func (f *fake) Mute()                       { f.mu.Lock(); defer f.mu.Unlock(); f.mute = true }
func (f *fake) Deafen(n int)                { f.mu.Lock(); defer f.mu.Unlock(); f.deaf = n }
func (f *fake) Deaf() int                   { f.mu.Lock(); defer f.mu.Unlock(); return f.deaf }
func (d *Device) SetSilent(silent bool)     { d.at.Load().life.silent.Store(silent) }

func (c *testChild) Signal(s syscall.Signal) { c.signal(s) }
func (c *testChild) IsStopped() bool         { return c.isStopped() }

// Busy is the error that Region.Close would have.
func (d *Device) Busy(r *Region) error {
	if r.inflight.Load() > 0 {
		return ErrBusy
	}
	return nil
}

// PlacedHost is a daemon that uses the links of a host of a lab.
func PlacedHost(t *testing.T, place *lab.Host, key *secure.PrivateKey, cfg config.Config) *TestHost {
	return &testHost{t: t, place: place, key: key, cfg: cfg}
}
