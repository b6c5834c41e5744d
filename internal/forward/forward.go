package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/edge"
	"multiedge/edge/stream"
)

// Forwarder carries connections by its rules. Make one with New, and Run it.
type Forwarder struct {
	dev   *edge.Device
	log   *slog.Logger
	rules []*running
}

// running is a rule and what it did.
type running struct {
	Rule
	addr  net.Addr
	slots chan struct{} // one taken for each connection
	Counters
}

// Counters are what a rule did since it began.
type Counters struct {
	Opened  atomic.Uint64 // connections that were carried
	Failed  atomic.Uint64 // connections whose other side could not be reached
	Broken  atomic.Uint64 // connections that ended by an error
	Open    atomic.Int64  // connections now
	Out, In atomic.Uint64 // bytes to the peer, and from it
}

// New checks the rules. The device stays the caller's.
func New(dev *edge.Device, rules []Rule, log *slog.Logger) (*Forwarder, error) {
	if len(rules) == 0 {
		return nil, errors.New("forward: no rules: give LISTEN PEER SERVICE, or [[forward]] in the configuration")
	}
	f := &Forwarder{dev: dev, log: log}
	for i := range rules {
		r := &running{Rule: rules[i]}
		if err := r.Check(); err != nil {
			return nil, err
		}
		r.addr, _ = ParseAddr(r.Listen + r.Target)
		if r.Conns == 0 {
			r.Conns = DefaultConns
		}
		r.slots = make(chan struct{}, r.Conns)
		f.rules = append(f.rules, r)
	}
	return f, nil
}

// Each calls do with every rule and its counters.
func (f *Forwarder) Each(do func(rule *Rule, c *Counters)) {
	for _, r := range f.rules {
		do(&r.Rule, &r.Counters)
	}
}

// Run carries connections until ctx ends; then it resets those that are open. It fails at once if a rule cannot listen
// or its service cannot be offered. ready, which may be nil, is called when programs can connect.
func (f *Forwarder) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range f.rules {
		accept, stop, err := f.open(ctx, r)
		if err != nil {
			cancel(nil)
			return err
		}
		context.AfterFunc(ctx, stop)
		all.Go(func() {
			if err := f.serve(ctx, r, accept); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("forward %s: %w", r.String(), err))
			}
		})
	}
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// open listens where the rule says. stop ends accept.
func (f *Forwarder) open(ctx context.Context, r *running) (accept func() (net.Conn, error), stop func(), err error) {
	if r.Listen == "" {
		l, err := stream.Config{Device: f.dev}.Listen(ctx, r.Service)
		if err != nil {
			return nil, nil, fmt.Errorf("forward: the service %q cannot be offered: %w", r.Service, err)
		}
		return l.Accept, func() { l.Close() }, nil
	}
	l, err := listen(ctx, r.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("forward: %w", err)
	}
	return l.Accept, func() { l.Close() }, nil
}

// listen is net.Listen that takes over the path of a Unix socket whose server has gone.
func listen(ctx context.Context, addr net.Addr) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, addr.Network(), addr.String())
	if err == nil || addr.Network() != "unix" {
		return l, err
	}
	var d net.Dialer
	if c, alive := d.DialContext(ctx, "unix", addr.String()); alive == nil {
		c.Close()
		return nil, err
	}
	if st, bad := os.Lstat(addr.String()); bad != nil || st.Mode().Type() != os.ModeSocket ||
		os.Remove(addr.String()) != nil {
		return nil, err
	}
	return lc.Listen(ctx, addr.Network(), addr.String())
}

// serve accepts connections and carries each in goroutines of its own, Conns at once; further ones wait where they are.
func (f *Forwarder) serve(ctx context.Context, r *running, accept func() (net.Conn, error)) error {
	var open sync.WaitGroup
	defer open.Wait()
	for pause := time.Duration(0); ; {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := accept()
		if err != nil {
			<-r.slots
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second) // out of descriptors, say: it passes
			f.log.Warn("forward: cannot accept; trying again", "rule", r.String(), "reason", err, "after", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		open.Go(func() {
			defer func() { <-r.slots }()
			f.carry(ctx, r, c.(socket))
		})
	}
}

// carry makes the other half of a connection and pumps.
func (f *Forwarder) carry(ctx context.Context, r *running, c socket) {
	other, err := f.reach(ctx, r)
	if err != nil {
		r.Failed.Add(1)
		reset(c)
		f.log.Warn("forward: the other side cannot be reached", "rule", r.String(), "reason", err)
		return
	}
	local, remote := c, other
	if r.Listen == "" {
		local, remote = other, c
	}
	r.Opened.Add(1)
	r.Open.Add(1)
	defer r.Open.Add(-1)
	stop := context.AfterFunc(ctx, func() {
		reset(local)
		reset(remote)
	})
	defer stop()
	if err := pump(local, remote, &r.Out, &r.In); err != nil {
		r.Broken.Add(1)
		f.log.Debug("forward: a connection broke", "rule", r.String(), "reason", err)
	}
}

// reachTime bounds how long a connection waits for its other side.
const reachTime = 10 * time.Second

func (f *Forwarder) reach(ctx context.Context, r *running) (socket, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if r.Listen != "" {
		s, err := stream.Config{Device: f.dev}.Dial(ctx, r.Peer, r.Service)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, r.addr.Network(), r.addr.String())
	if err != nil {
		return nil, err
	}
	return c.(socket), nil
}
