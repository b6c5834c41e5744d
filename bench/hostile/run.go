// Package hostile is a client of the daemon that misbehaves in a chosen way, as fast as it can. It speaks the protocol
// by hand, over package ipc, so that it can do what package edge never would. Tests and fault scenarios run it beside
// honest clients, whose operations must go on as before.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"multiedge/internal/ipc"
)

// Options say what to do and to whom.
type Options struct {
	Mode    string        // one of Names
	Seed    uint64        // of what is random
	Clients int           // of the same user, side by side; 0: one
	For     time.Duration // of each attachment's mischief; zero: until the daemon or the context ends it
	Again   bool          // attach anew after each eviction, as soon as the daemon allows, until the context ends

	// Peer and Service, if set, name somebody to connect to who accepts and exports memory for writing and reading
	// under any name: operations are then in flight during the mischief.
	Peer, Service string
	Hello         func() []byte // what each dial carries; nil: nothing

	Dial func(context.Context) (*ipc.Conn, error) // reaches the daemon
}

// Report is what came of it.
type Report struct {
	Mode      string   `json:"mode"`
	Acts      uint64   `json:"acts"`      // how often the rule was broken
	Attached  int      `json:"attached"`  // attachments made
	Evictions int      `json:"evictions"` // of them, those the daemon ended
	Expected  bool     `json:"expected"`  // whether a daemon evicts for this
	First     float64  `json:"first"`     // seconds from the first act to the first eviction; 0: none
	Seconds   float64  `json:"seconds"`
	Refusals  uint64   `json:"refusals,omitempty"` // of memory
	Holes     uint64   `json:"holes,omitempty"`    // punched into pinned memory
	Completed uint64   `json:"completed"`          // operations of its own
	Borne     []string `json:"borne,omitempty"`    // entries that a daemon should evict for, and did not
}

// Names lists the modes.
func Names() (names []string) {
	for _, m := range modes {
		names = append(names, m.name)
	}
	return names
}

// Fatal says whether a daemon that protects itself evicts a client for this.
func Fatal(name string) bool { return find(name).fatal }

// find returns a mode, without act if there is none of that name.
func find(name string) *mode {
	for i := range modes {
		if modes[i].name == name {
			return &modes[i]
		}
	}
	return &mode{}
}

// WithPeer says whether this is about operations with a peer, for which Options must name one.
func WithPeer(name string) bool { return find(name).peer }

// turnsApart is how far apart clients of successive seeds begin with what there are many kinds of: few of them try all.
const turnsApart = 5

// Run misbehaves until the daemon ends it, or with Again until ctx ends, which is no error.
func Run(ctx context.Context, o Options) (rep Report, err error) {
	m := find(o.Mode)
	if m.act == nil {
		return rep, fmt.Errorf("hostile: there is no mode %q; choose one of %s", o.Mode, strings.Join(Names(), ", "))
	}
	reps, errs := make([]Report, max(o.Clients, 1)), make([]error, max(o.Clients, 1))
	var all sync.WaitGroup
	for i := range reps {
		all.Go(func() {
			one := o
			one.Seed += uint64(i) << 32
			reps[i], errs[i] = runOne(ctx, m, one)
		})
	}
	all.Wait()
	rep = reps[0]
	for i := range reps[1:] {
		rep.Add(&reps[1+i])
	}
	return rep, errors.Join(errs...)
}

// Add adds what another client did at the same time.
func (rep *Report) Add(o *Report) {
	rep.Acts, rep.Attached, rep.Evictions = rep.Acts+o.Acts, rep.Attached+o.Attached, rep.Evictions+o.Evictions
	rep.Refusals, rep.Holes, rep.Completed = rep.Refusals+o.Refusals, rep.Holes+o.Holes, rep.Completed+o.Completed
	rep.Borne = append(rep.Borne, o.Borne...)
	if o.First > 0 && (rep.First == 0 || o.First < rep.First) {
		rep.First = o.First
	}
	rep.Seconds = max(rep.Seconds, o.Seconds)
}

func runOne(ctx context.Context, m *mode, o Options) (rep Report, err error) {
	rep = Report{Mode: m.name, Expected: m.fatal}
	start := time.Now()
	defer func() { rep.Seconds = time.Since(start).Seconds() }()
	r := rand.New(rand.NewPCG(o.Seed, 1))
	for ctx.Err() == nil {
		conn, err := o.Dial(ctx)
		if err == nil {
			var c *client
			if c, err = attach(ctx, conn, &o); err == nil {
				rep.Attached++
				c.turn = o.Seed*turnsApart + uint64(rep.Attached)
				rep.misbehave(ctx, m, c, r, o.For)
				c.close()
			}
		}
		if err != nil && ctx.Err() == nil && (rep.Attached == 0 || !o.Again) {
			return rep, err
		}
		if !o.Again {
			break
		}
	}
	return rep, nil
}

// misbehave goes on until the session ends.
func (rep *Report) misbehave(ctx context.Context, m *mode, c *client, r *rand.Rand, limit time.Duration) {
	go c.listen()
	defer func() { rep.Add(&c.did) }()
	defer func() { <-c.gone }()
	defer c.Conn.Close()
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.gone:
			rep.evicted(start)
			return
		default:
		}
		n, err := m.act(c, r)
		rep.Acts += n
		if limit > 0 && time.Since(start) > limit {
			return
		}
		if err != nil { // what was shared is spoilt, or the socket is closed: the daemon's move
			c.Bell.Ring()
			select {
			case <-ctx.Done():
			case <-c.gone:
				rep.evicted(start)
			}
			return
		}
	}
}

func (rep *Report) evicted(start time.Time) {
	if rep.Evictions++; rep.Evictions == 1 {
		rep.First = time.Since(start).Seconds()
	}
}
