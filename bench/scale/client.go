package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/edge"
)

// Spec is the size of a run.
type Spec struct {
	Peer    string `json:"peer"`
	Conns   int    `json:"conns"`   // open at once, with an operation on each
	Cycles  int    `json:"cycles"`  // connections opened and closed after that
	Workers int    `json:"workers"` // that do so at once
}

// Moment is what both hosts hold at one point of a run.
type Moment struct {
	What   string `json:"what"`
	Client Host   `json:"client"`
	Server Host   `json:"server"`
}

// Result is what a run came to.
type Result struct {
	Spec
	Moments       []Moment `json:"moments"`
	OpenSeconds   float64  `json:"open_seconds"` // all connections, with the operation
	CloseSeconds  float64  `json:"close_seconds"`
	CycleSeconds  float64  `json:"cycle_seconds"`
	CyclesPerSec  float64  `json:"cycles_per_second"`
	PerConnection PerConn  `json:"bytes_per_connection"`        // after one operation on each
	Used          PerConn  `json:"bytes_per_connection_used"`   // right after usedOps at once on each
	Rested        PerConn  `json:"bytes_per_connection_rested"` // when they had rested a while
	Leaks         []string `json:"leaks"`                       // what was not given back; empty: nothing
	Grown         []string `json:"grown"`                       // whose resident memory was not
}

// PerConn is the growth of resident memory from idle to a moment with all connections open, divided by their number.
type PerConn struct {
	ClientDaemon      float64 `json:"client_daemon"`
	ServerDaemon      float64 `json:"server_daemon"`
	ClientApplication float64 `json:"client_application"`
	ServerApplication float64 `json:"server_application"`
}

// run is a client at work.
type run struct {
	Spec
	d      *edge.Device
	local  *edge.Region
	ctl    *edge.Conn
	ask    *edge.RemoteRegion
	inbox  *edge.Region
	res    *Result
	show   func(what string, share float64)
	shown  time.Time
	showMu sync.Mutex
}

// Run carries a Spec out. It calls show now and then with what is being done and how far that is.
func Run(ctx context.Context, d *edge.Device, s Spec, show func(what string, share float64)) (*Result, error) {
	r := &run{Spec: s, d: d, show: show, res: &Result{Spec: s, Leaks: []string{}, Grown: []string{}}}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer r.ctl.Close()
	var conns []*edge.Conn
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"warm", func(ctx context.Context) error { // so that what is allocated once is there
			conns, err := r.open(ctx, min(s.Conns, 4*s.Workers), "warming up")
			if err == nil {
				err = r.close(ctx, conns, "warming up")
			}
			return err
		}},
		{"open", nil},
		{"used", func(ctx context.Context) error { return r.use(ctx, conns) }},
		{"rested", rest},
		{"closed", nil},
		{"cycled", r.cycle},
		{"open again", nil}, {"closed again", nil},
	}
	for _, step := range steps {
		start, err := time.Now(), error(nil)
		switch {
		case step.do != nil:
			err = step.do(ctx)
		case conns == nil:
			conns, err = r.open(ctx, s.Conns, step.what)
			if step.what == "open" {
				r.res.OpenSeconds = time.Since(start).Seconds()
			}
		default:
			err = r.close(ctx, conns, step.what)
			conns = nil
			if step.what == "closed" {
				r.res.CloseSeconds = time.Since(start).Seconds()
			}
		}
		if err == nil {
			err = r.moment(ctx, step.what, len(conns))
		}
		if err != nil {
			return r.res, fmt.Errorf("scale: %s: %w", step.what, err)
		}
	}
	r.res.judge()
	return r.res, nil
}

func (r *run) prepare(ctx context.Context) (err error) {
	if r.local, err = r.d.Register(slot); err != nil {
		return err
	}
	if r.inbox, err = r.d.Register(maxAnswer); err != nil {
		return err
	}
	if r.ctl, err = r.d.Dial(ctx, r.Peer, control); err != nil {
		return err
	}
	if _, err = r.inbox.Export(r.ctl, answers, edge.RemoteWrite, 0, maxAnswer); err != nil {
		return err
	}
	r.ask, err = r.ctl.Import(ctx, "ask")
	return err
}

// server asks the other side what its host holds.
func (r *run) server(ctx context.Context) (h Host, err error) {
	op, err := r.ctl.Post(&edge.Work{Kind: edge.Write, Flags: edge.Notify, Inline: []byte{1}, Remote: r.ask})
	if err == nil {
		err = op.Wait(ctx)
	}
	if err != nil {
		return h, err
	}
	n, err := r.ctl.WaitNotify(ctx)
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(r.inbox.Bytes()[:min(int(n.Imm), maxAnswer)], &h)
}

// moment measures both hosts once they hold that many connections besides the one that asks.
func (r *run) moment(ctx context.Context, what string, conns int) error {
	m := Moment{What: what}
	for start := time.Now(); ; {
		var err error
		if m.Server, err = r.server(ctx); err != nil {
			return err
		}
		if m.Client, err = look(ctx, r.d); err != nil {
			return err
		}
		if m.Client.Daemon.Connections == conns+1 && m.Server.Daemon.Connections == conns+1 {
			break
		}
		if time.Since(start) > settleTime {
			return fmt.Errorf("the daemons have %d and %d connections after %v; %d are open",
				m.Client.Daemon.Connections-1, m.Server.Daemon.Connections-1, settleTime, conns)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.res.Moments = append(r.res.Moments, m)
	return nil
}

// each calls f for 0 to n-1 from all workers and returns the first error.
func (r *run) each(n int, what string, f func(i int) error) error {
	var next, done atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range r.Workers {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				r.progress(what, float64(done.Add(1))/float64(n))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (r *run) progress(what string, share float64) {
	if r.show == nil || !r.showMu.TryLock() {
		return
	}
	defer r.showMu.Unlock()
	if now := time.Now(); now.Sub(r.shown) > 200*time.Millisecond {
		r.shown = now
		r.show(what, share)
	}
}

// open dials n connections and writes over each.
func (r *run) open(ctx context.Context, n int, what string) ([]*edge.Conn, error) {
	conns := make([]*edge.Conn, n)
	return conns, r.each(n, what, func(i int) error {
		c, err := r.d.Dial(ctx, r.Peer, service)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		conns[i] = c
		mem, err := c.Import(ctx, memory)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		op, err := c.PostWait(ctx, &edge.Work{Kind: edge.Write, Local: r.local, Len: slot, Remote: mem})
		if err == nil {
			err = op.Wait(ctx)
		}
		if err != nil {
			return fmt.Errorf("operation of connection %d: %w", i, err)
		}
		return nil
	})
}

// usedOps is how many operations each connection carries at once when it is used.
const usedOps = 256

// use writes over every connection, usedOps times at once.
func (r *run) use(ctx context.Context, conns []*edge.Conn) error {
	return r.each(len(conns), "using", func(i int) error {
		mem, err := conns[i].Import(ctx, memory)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		ops := make([]edge.Op, 0, usedOps)
		for range usedOps {
			op, err := conns[i].PostWait(ctx, &edge.Work{Kind: edge.Write, Local: r.local, Len: slot, Remote: mem})
			if err != nil {
				return fmt.Errorf("operation of connection %d: %w", i, err)
			}
			ops = append(ops, op)
		}
		for _, op := range ops {
			if err := op.Wait(ctx); err != nil {
				return fmt.Errorf("operation of connection %d: %w", i, err)
			}
		}
		return nil
	})
}

// restTime is after how long connections that rest have given back what they grew to.
const restTime = 5 * time.Second

func rest(ctx context.Context) error {
	select {
	case <-time.After(restTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *run) close(ctx context.Context, conns []*edge.Conn, what string) error {
	return r.each(len(conns), what, func(i int) error { return conns[i].CloseContext(ctx) })
}

// cycle opens and closes connections, all workers at once.
func (r *run) cycle(ctx context.Context) error {
	start := time.Now()
	err := r.each(r.Cycles, "cycling", func(i int) error {
		c, err := r.d.Dial(ctx, r.Peer, service, edge.Data([]byte{1}))
		if err == nil {
			err = c.CloseContext(ctx)
		}
		if err != nil {
			return fmt.Errorf("cycle %d: %w", i, err)
		}
		return nil
	})
	r.res.CycleSeconds = time.Since(start).Seconds()
	r.res.CyclesPerSec = float64(r.Cycles) / r.res.CycleSeconds
	return err
}
