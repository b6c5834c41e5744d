package scale

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
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
	Moments       []Moment  `json:"moments"`
	OpenSeconds   float64   `json:"open_seconds"` // all connections, with the operation
	CloseSeconds  float64   `json:"close_seconds"`
	CycleSeconds  float64   `json:"cycle_seconds"`
	CyclesPerSec  float64   `json:"cycles_per_second"`
	PerConnection PerConn   `json:"bytes_per_connection"`        // after one operation on each
	Used          PerConn   `json:"bytes_per_connection_used"`   // right after usedOps at once on each
	Rested        PerConn   `json:"bytes_per_connection_rested"` // when they had rested a while
	First         []float64 `json:"first_after_rest_us"`         // a write on each connection, alone, after its rest
	Second        []float64 `json:"second_us"`                   // and the one after it
	Leaks         []string  `json:"leaks"`                       // what was not given back; empty: nothing
	Grown         []string  `json:"grown"`                       // whose resident memory was not
}

// PerConn is the growth of resident memory from idle to a moment with all connections open, divided by their number.
type PerConn struct {
	ClientDaemon      float64 `json:"client_daemon"`
	ServerDaemon      float64 `json:"server_daemon"`
	ClientApplication float64 `json:"client_application"`
	ServerApplication float64 `json:"server_application"`
}

// link is a connection, and the memory at its other end.
type link struct {
	*edge.Conn
	mem *edge.RemoteRegion
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
func Run(ctx context.Context, d *edge.Device, s Spec, show func(what string, share float64)) *Result {
	r := &run{Spec: s, d: d, show: show, res: &Result{Spec: s, Leaks: []string{}, Grown: []string{}}}
	r.prepare(ctx)
	defer r.ctl.Close()
	var conns []link
	steps := []struct {
		what string
		do   func()
	}{
		{"warm", func() { // so that what is allocated once is there
			r.close(ctx, r.open(ctx, min(s.Conns, 4*s.Workers), "warming up"), "warming up")
		}},
		{"open", nil},
		{"used", func() { r.use(ctx, conns) }},
		{"rested", func() { kit.Rest(ctx, restTime) }},
		{"back", func() { r.comeBack(ctx, conns) }},
		{"closed", nil},
		{"cycled", func() { r.cycle(ctx) }},
		{"open again", nil}, {"closed again", nil},
	}
	for _, step := range steps {
		kit.Doing(func() {
			start := time.Now()
			switch {
			case step.do != nil:
				step.do()
			case conns == nil:
				conns = r.open(ctx, s.Conns, step.what)
				if step.what == "open" {
					r.res.OpenSeconds = time.Since(start).Seconds()
				}
			default:
				r.close(ctx, conns, step.what)
				conns = nil
				if step.what == "closed" {
					r.res.CloseSeconds = time.Since(start).Seconds()
				}
			}
			r.moment(ctx, step.what, len(conns))
		}, "scale: %s", step.what)
	}
	r.res.judge()
	return r.res
}

func (r *run) prepare(ctx context.Context) {
	r.local = kit.Get(r.d.Register(slot))
	r.inbox = kit.Get(r.d.Register(maxAnswer))
	r.ctl = kit.Get(r.d.Dial(ctx, r.Peer, control))
	kit.Get(r.inbox.Export(r.ctl, answers, edge.RemoteWrite, 0, maxAnswer))
	r.ask = kit.Get(r.ctl.Import(ctx, "ask"))
}

// server asks the other side what its host holds.
func (r *run) server(ctx context.Context) (h Host) {
	kit.Do(ctx, r.ctl, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Inline: []byte{1}, Remote: r.ask})
	n := kit.Get(r.ctl.WaitNotify(ctx))
	kit.Check(json.Unmarshal(r.inbox.Bytes()[:min(int(n.Imm), maxAnswer)], &h))
	return h
}

// moment measures both hosts once they hold that many connections besides the one that asks.
func (r *run) moment(ctx context.Context, what string, conns int) {
	m := Moment{What: what}
	for start := time.Now(); ; {
		m.Server = r.server(ctx)
		m.Client = look(ctx, r.d)
		if m.Client.Daemon.Connections == conns+1 && m.Server.Daemon.Connections == conns+1 {
			break
		}
		if time.Since(start) > settleTime {
			kit.Fail("the daemons have %d and %d connections after %v; %d are open",
				m.Client.Daemon.Connections-1, m.Server.Daemon.Connections-1, settleTime, conns)
		}
		kit.Rest(ctx, 50*time.Millisecond)
	}
	r.res.Moments = append(r.res.Moments, m)
}

// each calls f for 0 to n-1, as many at a time as there are workers.
func (r *run) each(ctx context.Context, n int, what string, f func(i int)) {
	var done atomic.Int64
	kit.Each(ctx, n, r.Workers, func(_ context.Context, i int) {
		f(i)
		r.progress(what, float64(done.Add(1))/float64(n))
	})
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
func (r *run) open(ctx context.Context, n int, what string) []link {
	conns := make([]link, n)
	r.each(ctx, n, what, func(i int) {
		kit.Doing(func() {
			c := kit.Get(r.d.Dial(ctx, r.Peer, service))
			conns[i] = link{c, kit.Get(c.Import(ctx, memory))}
			r.write(ctx, conns[i])
		}, "connection %d", i)
	})
	return conns
}

func (r *run) write(ctx context.Context, c link) {
	kit.Do(ctx, c.Conn, &edge.Work{Kind: edge.Write, Local: r.local, Len: slot, Remote: c.mem})
}

// comeBack writes over every connection, one after the other, twice: after its rest, and at once again.
func (r *run) comeBack(ctx context.Context, conns []link) {
	times := [2]*[]float64{&r.res.First, &r.res.Second}
	for i, c := range conns {
		for _, us := range times {
			start := time.Now()
			r.write(ctx, c)
			*us = append(*us, float64(time.Since(start).Nanoseconds())/1e3)
		}
		r.progress("coming back", float64(i+1)/float64(len(conns)))
	}
}

// usedOps is how many operations each connection carries at once when it is used.
const usedOps = 256

// use writes over every connection, usedOps times at once.
func (r *run) use(ctx context.Context, conns []link) {
	r.each(ctx, len(conns), "using", func(i int) {
		kit.Doing(func() {
			ops := make([]edge.Op, usedOps)
			for k := range ops {
				w := edge.Work{Kind: edge.Write, Local: r.local, Len: slot, Remote: conns[i].mem}
				ops[k] = kit.Get(conns[i].Post(ctx, &w))
			}
			kit.Check(edge.WaitAll(ctx, ops))
		}, "connection %d", i)
	})
}

// restTime is after how long connections that rest have given back what they grew to.
const restTime = 5 * time.Second

func (r *run) close(ctx context.Context, conns []link, what string) {
	r.each(ctx, len(conns), what, func(i int) { kit.Check(conns[i].CloseContext(ctx)) })
}

// cycle opens and closes connections, all workers at once.
func (r *run) cycle(ctx context.Context) {
	start := time.Now()
	r.each(ctx, r.Cycles, "cycling", func(i int) {
		kit.Doing(func() {
			c := kit.Get(r.d.Dial(ctx, r.Peer, service, edge.Data([]byte{1})))
			kit.Check(c.CloseContext(ctx))
		}, "cycle %d", i)
	})
	r.res.CycleSeconds = time.Since(start).Seconds()
	r.res.CyclesPerSec = float64(r.Cycles) / r.res.CycleSeconds
}

// Probe asks what two hosts hold: this one, and one that runs Serve.
type Probe struct{ r run }

// NewProbe connects to a host that runs Serve.
func NewProbe(ctx context.Context, d *edge.Device, peer string) *Probe {
	p := &Probe{run{Spec: Spec{Peer: peer}, d: d}}
	p.r.prepare(ctx)
	return p
}

// Hosts returns what both hosts hold now.
func (p *Probe) Hosts(ctx context.Context) (client, server Host) {
	server = p.r.server(ctx)
	return look(ctx, p.r.d), server
}

// Close ends the connection.
func (p *Probe) Close() { p.r.ctl.Close() }
