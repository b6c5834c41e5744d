package daemon

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/bench/hostile"
	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// honest is a client that writes without pause and counts what completes.
type honest struct {
	*testClient
	conn, region uint32
	key          uint64
	done         atomic.Uint64
	bad          atomic.Uint64
	stop         atomic.Bool
	ended        chan struct{}
}

func beHonest(t *testing.T, server, client *testClient, peer string) *honest {
	t.Helper()
	h := &honest{testClient: client, ended: make(chan struct{})}
	var atServer uint32
	atServer, h.conn = dialAccept(t, server, client, peer, "s")
	region, _ := server.register(1 << 16)
	h.key = exportTo(server, client, atServer, region, 1<<16, regmem.RemoteWrite|regmem.RemoteRead)
	h.region, _ = client.register(1 << 16)
	go h.run()
	t.Cleanup(h.halt)
	return h
}

func (h *honest) halt() {
	h.stop.Store(true)
	<-h.ended
}

// run keeps 16 writes in flight.
func (h *honest) run() {
	defer close(h.ended)
	var buf [64]ipc.CQE
	inFlight, token := 0, uint64(0)
	for !h.stop.Load() {
		for ; inFlight < 16; inFlight++ {
			token++
			h.sq.Put(&ipc.SQE{Op: ipc.OpWrite, Conn: h.conn, Token: token, Key: h.key, Region: h.region, Len: 4096})
			if h.sq.Publish() {
				h.bell.Ring()
			}
		}
		n, err := h.cq.Drain(buf[:])
		if err != nil {
			h.bad.Add(1)
			return
		}
		for i := range buf[:n] {
			if buf[i].Status != ipc.StatusOK {
				h.bad.Add(1)
			}
		}
		inFlight -= n
		h.done.Add(uint64(n))
		if n == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// rate measures writes per second while f runs.
func (h *honest) rate(f func()) float64 {
	before, start := h.done.Load(), time.Now()
	f()
	return float64(h.done.Load()-before) / time.Since(start).Seconds()
}

// Beside a client that misbehaves in every way there is, an honest one at the same daemon works on without an error,
// and only the hostile one is evicted. What it costs the neighbour is printed; what it may cost is measured by
// edgebench on a quiet machine.
func TestNeighboursOfHostileClients(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server := attach(t, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	victim := beHonest(t, server, attach(t, b, 64), "a")
	// The hostile client's peer accepts and exports, as any service might.
	greedy := attach(t, a, 64)
	greedy.must(&ipc.Message{Kind: ipc.KindListen, Service: "h"})
	region, _ := greedy.register(1 << 20)
	go greedy.serveAll(region)
	for _, name := range hostile.Names() {
		t.Run(name, func(t *testing.T) {
			evictions := func() uint64 { return snapshot(t, b.Daemon()).Status.Evictions }
			before, alone := evictions(), victim.rate(func() { time.Sleep(50 * time.Millisecond) })
			ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
			defer cancel()
			mischief := 200 * time.Millisecond
			if hostile.Fatal(name) {
				mischief = 0 // until it is evicted
			}
			var rep hostile.Report
			var err error
			beside := victim.rate(func() {
				rep, err = hostile.Run(ctx, hostile.Options{
					Mode: name, Seed: 1, For: mischief, Peer: "a", Service: "h",
					Dial: func(context.Context) (*ipc.Conn, error) { return b.Attach() },
				})
			})
			if err != nil || rep.Acts == 0 {
				t.Fatalf("%+v, %v", rep, err)
			}
			if rep.Expected && (rep.Evictions != 1 || evictions() != before+1) {
				t.Errorf("not evicted: %+v", rep)
			}
			if rep.Holes != 0 {
				t.Errorf("%d holes in pinned memory", rep.Holes)
			}
			if !rep.Expected && evictions() != before {
				t.Errorf("evicted for nothing the daemon should mind: %+v", rep)
			}
			done := victim.done.Load()
			until(t, "the neighbour works on", deadline, func() bool { return victim.done.Load() > done })
			if n := victim.bad.Load(); n != 0 {
				t.Fatalf("%d writes of the neighbour went wrong", n)
			}
			t.Logf("%d acts, evicted after %.3f s; the neighbour made %.0f writes/s alone, %.0f beside it", rep.Acts,
				rep.First, alone, beside)
		})
	}
	until(t, "the hostile clients are forgotten", deadline,
		func() bool { return len(snapshot(t, b.d).Clients) == 1 })
}

// serveAll accepts every connection and exports memory on it, until the client is closed.
func (c *testClient) serveAll(region uint32) {
	id := uint64(1 << 40)
	for m := range c.in {
		id += 2
		switch m.Kind {
		case ipc.KindIncoming:
			c.conn.Send(&ipc.Message{ID: id, Kind: ipc.KindAccept, Conn: m.Conn})
		case ipc.KindAccept:
			if m.Error == nil {
				c.conn.Send(&ipc.Message{ID: id + 1, Kind: ipc.KindExport, Conn: m.Conn, Region: region, Size: 1 << 20,
					Perm: uint8(regmem.RemoteWrite | regmem.RemoteRead), Name: "h"})
			}
		}
	}
}

// While a long operation of a connection lasts, its client's other connections go on, though operations that completed
// around it and others that wait have used up the numbers its window has.
func TestLongOperationHoldsUpItsConnectionAlone(t *testing.T) {
	const window, size = 4, 16 << 20
	a, b := nodes(t, 1, func(c *config.Config) { c.OpWindow = window })
	server, client := attach(t, a, 64), attach(t, b, 64)
	region, _ := server.register(size)
	local, _ := client.register(size)
	export := func(atServer uint32) uint64 {
		return exportTo(server, client, atServer, region, size, regmem.RemoteRead|regmem.RemoteWrite)
	}
	atServer, busy := connect(t, server, client, "a", "mem")
	busyKey := export(atServer)
	atServer, other := dialAccept(t, server, client, "a", "mem")
	otherKey := export(atServer)
	for _, e := range []*Embedded{a, b} { // both threads stay away
		until(t, "token", deadline, func() bool { return e.d.shard.Hold() })
		defer e.d.shard.Release()
	}
	const read, last = 1000, 2000
	next, completed := uint64(0), []uint64(nil)
	write := func(conn uint32, key, token uint64) {
		client.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: conn, Token: token, Key: key})
	}
	until(t, "the last write", deadline, func() bool {
		b.d.shard.Iterate(mono.Now())
		a.d.shard.Iterate(mono.Now())
		var buf [64]ipc.CQE
		n, err := client.cq.Drain(buf[:])
		must(t, err)
		for _, e := range buf[:n] {
			if e.Status != ipc.StatusOK {
				t.Fatalf("operation %d: %v", e.Token, e.Status)
			}
			completed = append(completed, e.Token)
		}
		switch {
		case next == 0:
			client.post(ipc.SQE{Op: ipc.OpRead, Conn: busy, Token: read, Key: busyKey, Region: local, Len: size})
			fallthrough
		case next < window-1 && uint64(len(completed)) == next:
			write(busy, busyKey, next)
			next++
		case next == window-1 && uint64(len(completed)) == next:
			for ; next < 2*(window-1); next++ {
				write(busy, busyKey, next)
			}
			write(other, otherKey, last)
		}
		return len(completed) > 0 && slices.Contains(completed, last)
	})
	if slices.Contains(completed, read) {
		t.Error("a write on another connection waited for the read")
	}
}
