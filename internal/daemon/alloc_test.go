package daemon

import (
	"testing"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// An operation's way through both shards allocates nothing: ring, checks, engine, frames, completion, notification.

func TestNoAllocationPerOperation(t *testing.T) {
	a, b := nodes(t, 2, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	atServer, atClient := connect(t, server, client, "a", "mem")
	region, _ := server.register(1 << 20)
	server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: 1 << 20, Perm: uint8(regmem.RemoteWrite), Name: "x"})
	key := client.event(ipc.KindAdvert).Key
	local, _ := client.register(1 << 20)
	hold := func(e *Embedded) func() { // both threads stay away
		until(t, "token", deadline, func() bool { return e.d.shard.token.CompareAndSwap(0, 1) })
		return func() { e.d.shard.token.Store(0) }
	}
	defer hold(a)()
	defer hold(b)()
	write := ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Conn: atClient, Token: 1, Key: key, Region: local, Len: 40 << 10}
	credit := ipc.SQE{Op: ipc.OpCredit, Conn: atServer, Imm: 1}
	var buf [4]ipc.CQE
	one := func() {
		client.sq.Room()
		client.sq.Put(&write)
		client.sq.Publish()
		for done, noted := false, false; !done || !noted; {
			b.d.shard.iterate(mono.Now())
			a.d.shard.iterate(mono.Now())
			if n, _ := client.cq.Drain(buf[:]); n > 0 {
				done = true
			}
			if n, _ := server.cq.Drain(buf[:]); n > 0 {
				noted = true
			}
		}
		server.sq.Room()
		server.sq.Put(&credit)
		server.sq.Publish()
	}
	for range 2000 {
		one()
	}
	if n := testing.AllocsPerRun(2000, one); n > 0 && !raceDetector {
		t.Errorf("%v allocations per operation", n)
	}
}
