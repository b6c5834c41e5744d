package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"multiedge/flowctl"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/sched"
)

// Endpoint is one node's transport: every peer, session and connection of one thread. Not safe for concurrent use.
type Endpoint struct {
	cfg       Config
	net       path.Net
	forecasts [MaxLinks]op.Forecast // of each local link
	nodes     peering.Endpoint
	ops       op.Endpoint
	turn      int // session with data to transmit first
	idleTurn  int // session without data to transmit first
	recs      build.Records
	builder   builder
	scratch   scratch
	train     train
	Count     Counters
	Latency   Latency
}

// scratch is memory for one call: nothing in it outlives the frame at hand.
type scratch struct {
	nonce secure.Nonce
	frame wire.Frame
	peek  wire.Bulk
	seg   wire.Segment
	ecn   frame.ECN
}

// New returns an endpoint without links. It fails if cfg cannot be used, saying which field.
func New(cfg Config) (*Endpoint, error) {
	if cfg.Node == (NodeID{}) || cfg.Epoch == 0 {
		return nil, errors.New("engine: Config.Node and Config.Epoch must be set")
	}
	if cfg.Grants == nil {
		return nil, errors.New("engine: Config.Grants must be set")
	}
	if len(cfg.Name) > MaxNodeName {
		return nil, fmt.Errorf("engine: node name %q is longer than %d bytes", cfg.Name, MaxNodeName)
	}
	cfg.setDefaults()
	if _, err := sched.New(cfg.Scheduler); err != nil {
		return nil, err
	}
	if cfg.OpWindow&(cfg.OpWindow-1) != 0 || cfg.OpWindow < 2 || cfg.OpWindow > 1<<15 {
		return nil, fmt.Errorf("engine: operation window %d is not a power of two between 2 and 32768", cfg.OpWindow)
	}
	if cfg.Shards < 1 || cfg.Shards > wire.MaxShards || cfg.Shard < 0 || cfg.Shard >= cfg.Shards {
		return nil, fmt.Errorf("engine: shard %d of %d: there are 1 to %d, numbered from 0", cfg.Shard, cfg.Shards,
			wire.MaxShards)
	}
	if cfg.MaxConns < 1 || cfg.MaxConns >= 1<<op.ConnIndexBits-op.SpareConns {
		return nil, fmt.Errorf("engine: %d connections: must be 1 to %d", cfg.MaxConns,
			1<<op.ConnIndexBits-op.SpareConns-1)
	}
	if n := cfg.Secure; n != nil && cfg.Node != NodeID(n.Public.Node()) {
		return nil, errors.New("engine: Config.Node is not the identity of Config.Secure's key")
	}
	e := &Endpoint{cfg: cfg}
	rng := rand.New(rand.NewPCG(cfg.Seed, cfg.Epoch))
	e.recs.Init()
	e.ops.Init(e.opConfig(rng))
	e.net.Init(path.Config{Profile: cfg.Profile, Framing: cfg.Framing, Sealed: cfg.Secure != nil}, rng, &e.Count)
	e.nodes.Init(e.peerConfig(), peering.Parts{Net: &e.net, Ops: &e.ops, Records: &e.recs, Count: &e.Count, Rand: rng})
	e.builder = e.newBuilder()
	return e, nil
}

func (e *Endpoint) opConfig(rng *rand.Rand) op.Config {
	c := &e.cfg
	return op.Config{Rand: rng, OpWindow: c.OpWindow, HeldBytes: c.HeldBytes, MaxConns: c.MaxConns,
		MaxDials: c.MaxDials, DialTime: c.DialTime, CopiedMost: c.CopiedMost, DropMisses: c.DropMisses,
		Grants: c.Grants, Placer: c.Placer, Exchanger: c.Exchanger, Count: &e.Count, Latency: &e.Latency,
		Crowded: e.nodes.Crowded, NextShard: e.nodes.TryNextShard}
}

func (e *Endpoint) peerConfig() peering.Config {
	c := &e.cfg
	return peering.Config{Node: c.Node, Name: c.Name, Epoch: c.Epoch, Shard: c.Shard, Shards: c.Shards,
		Scheduler: c.Scheduler, MaxConns: c.MaxConns, AckDelay: c.Profile.Acks.Delay, DeadTime: c.DeadTime,
		KeepAlive: c.KeepAlive, HelloTime: c.HelloTime, Secure: c.Secure, Keys: c.Keys, Deferred: c.Deferred,
		CookieKey: c.CookieKey, Seed: c.Seed}
}

func (cfg *Config) setDefaults() {
	setDefault(&cfg.Framing, frame.DefaultFraming)
	setDefault(&cfg.Scheduler, "adaptive")
	setDefault(&cfg.OpWindow, 1024)
	setDefault(&cfg.CopiedMost, op.CopiedMost)
	setDefault(&cfg.HeldBytes, 16<<20)
	setDefault(&cfg.MaxConns, 1<<16)
	setDefault(&cfg.MaxDials, 1<<14)
	cfg.Keys.SetDefaults()
	setDefault(&cfg.Shards, 1)
	setDefault(&cfg.DialTime, 5e9)
	setDefault(&cfg.DeadTime, 15e9)
	setDefault(&cfg.KeepAlive, 1e9)
	setDefault(&cfg.HelloTime, 1e9)
	if cfg.Profile.Name == "" {
		cfg.Profile, _ = flowctl.ProfileByName("default")
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
