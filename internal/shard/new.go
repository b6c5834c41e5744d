package shard

import (
	"crypto/rand"
	"fmt"
	"log/slog"

	"multiedge/flowctl"
	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/idle"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Options are what a shard is made of. Those that are functions may be called by any goroutine of the shard's.
type Options struct {
	Number   int            // of Config.Shards, from 0
	Config   *config.Config // normalized
	Node     engine.NodeID
	Epoch    uint64
	Seed     uint64       // never zero
	Embedded bool         // regions are this process's own, and their pages can change places
	Secure   *secure.Node // nil: plaintext
	Services *Services    // the same for all shards
	Log      *slog.Logger
	Twin     Twin                 // what to say of a host that claims the node's identity
	Tell     func(Notice)         // what happens, for those who watch
	Reopen   func(link string)    // asks for a new driver of a link whose driver failed
	Close    func(linkdrv.Driver) // closes a driver, on another goroutine
}

// New makes a shard. It must be started, or shut down: it holds descriptors.
func New(o Options) (*Shard, error) {
	cfg := o.Config
	s := &Shard{
		number: o.Number, grants: regmem.NewTable(rand.Reader), limits: cfg.Limits, window: cfg.OpWindow, log: o.Log,
		twin: o.Twin, tell: o.Tell, pings: map[engine.ConnID]*Ping{},
		copying: cfg.Copy == config.CopyBoth || cfg.Copy == config.CopyRx,
		links:   linkSet{reopen: o.Reopen, closeDriver: o.Close},
		garbage: garbage{embedded: o.Embedded},
		clients: clientSet{conns: map[engine.ConnID]*Conn{}, services: map[string]*Client{}, offered: o.Services,
			ending: map[*User][]*Conn{}},
		idle: idleness{wait: waiter{mode: cfg.Poll, spin: idle.Patience{Base: cfg.Spin}}},
	}
	s.grants.OnRevoke = s.unexported
	s.openSpaces()
	if cfg.Copy == config.CopyRemap || cfg.Copy == config.CopyShuffle && o.Embedded {
		s.exchange = newExchange()
	}
	if cfg.Receivers > 0 {
		// what receivers take is copied
		s.links.receivers, s.links.lends = &receivers{}, cfg.Copy != config.CopyRemap && cfg.Copy != config.CopyNone
	}
	ec, err := s.engineConfig(&o)
	if err != nil {
		return nil, err
	}
	if s.eng, err = engine.New(ec); err != nil {
		return nil, err
	}
	if err = s.open(); err != nil {
		return nil, err
	}
	if s.links.receivers != nil {
		if err := s.links.receivers.start(s, cfg.Receivers); err != nil {
			s.close()
			s.box.close(0)
			return nil, err
		}
	}
	s.handshaker = newHandshaker(func(st *engine.Step) error {
		return s.box.post(func(now mono.Time) { s.eng.Stepped(now, st) })
	})
	return s, nil
}

// engineConfig is how the shard's engine is configured.
func (s *Shard) engineConfig(o *Options) (engine.Config, error) {
	cfg := o.Config
	profile, err := flowctl.ProfileByName(cfg.Profile)
	if err != nil {
		return engine.Config{}, err
	}
	if cfg.Window > 0 {
		profile.Window, profile.Most = cfg.Window, cfg.Window
	}
	checksum := engine.ChecksumFull
	if cfg.Checksum == "header" {
		checksum = engine.ChecksumHeader
	}
	ec := engine.Config{
		Node: o.Node, Name: cfg.Name, Epoch: o.Epoch, Seed: o.Seed, Framing: linkdrv.Framing(cfg.EtherType),
		Checksum: checksum, Scheduler: cfg.Scheduler, Profile: profile, OpWindow: cfg.OpWindow,
		DialTime: cfg.DialTimeout, DeadTime: cfg.DeadTime, KeepAlive: cfg.KeepAlive, HelloTime: cfg.HelloTime,
		Grants: s.grants, Secure: o.Secure, Deferred: true, Shard: o.Number, Shards: cfg.Shards,
		MaxDials: maxDials, CopySend: cfg.Copy == config.CopyBoth, DropMisses: cfg.Misses == config.MissesDrop,
	}
	rand.Read(ec.CookieKey[:]) // never fails
	if s.links.receivers != nil {
		ec.Placer = s.links.receivers
	}
	if s.exchange != nil {
		ec.Exchanger = &s.exchange.exchanger
	}
	return ec, nil
}

// open opens the descriptors that the shard sleeps on. After an error none is open.
func (s *Shard) open() (err error) {
	if s.box, err = newMailbox(); err != nil {
		return err
	}
	if s.idle.doorbells, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		s.box.close(0)
		return fmt.Errorf("epoll: %w", err)
	}
	if s.idle.alarm, err = newAlarm(); err != nil {
		unix.Close(s.idle.doorbells)
		s.box.close(0)
		return err
	}
	return nil
}

// close closes those but the mailbox's.
func (s *Shard) close() {
	unix.Close(s.idle.doorbells)
	s.idle.alarm.close()
}
