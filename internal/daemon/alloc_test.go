package daemon

import (
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// shuttle runs operations through two shards by hand, both of whose threads stay away: ring, checks, engine, frames,
// completion, notification.
type shuttle struct {
	a, b           *Embedded
	server, client *testClient
	credit         ipc.SQE
	buf            [4]ipc.CQE
}

var shuttled = []struct {
	name string
	sqe  ipc.SQE
}{
	{"write of 40 KiB", ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Len: 40 << 10}},
	{"write of 8 bytes", ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Len: 8}},
	{"read of 40 KiB", ipc.SQE{Op: ipc.OpRead, Len: 40 << 10}},
	{"read of 8 bytes", ipc.SQE{Op: ipc.OpRead, Len: 8}},
}

// newShuttle returns one, and what is the same in all submissions.
func newShuttle(t testing.TB, security string) (*shuttle, ipc.SQE) {
	a, b := nodesIn(t, security, 2, nil)
	s := &shuttle{a: a, b: b, server: attach(t, a, 64), client: attach(t, b, 256)}
	atServer, atClient := connect(t, s.server, s.client, "a", "mem")
	region, _ := s.server.register(1 << 20)
	key := exportTo(s.server, s.client, atServer, region, 1<<20, regmem.RemoteWrite|regmem.RemoteRead)
	local, _ := s.client.register(1 << 20)
	s.credit = ipc.SQE{Op: ipc.OpCredit, Conn: atServer, Imm: 1}
	for _, e := range []*Embedded{a, b} {
		until(t, "token", deadline, func() bool { return e.d.shard.Hold() })
		t.Cleanup(func() { e.d.shard.Release() })
	}
	return s, ipc.SQE{Conn: atClient, Token: 1, Key: key, Region: local}
}

// one takes an operation from its submission to its completion and, if it has one, its notification.
func (s *shuttle) one(e *ipc.SQE) {
	s.client.sq.Room()
	s.client.sq.Put(e)
	s.client.sq.Publish()
	noted := e.Flags&ipc.FlagNotify == 0
	for done := false; !done || !noted; {
		s.b.d.shard.Iterate(mono.Now())
		s.a.d.shard.Iterate(mono.Now())
		if n, _ := s.client.cq.Drain(s.buf[:]); n > 0 {
			done = true
		}
		if n, _ := s.server.cq.Drain(s.buf[:]); n > 0 {
			noted = true
		}
	}
	if e.Flags&ipc.FlagNotify != 0 {
		s.server.sq.Room()
		s.server.sq.Put(&s.credit)
		s.server.sq.Publish()
	}
}

func (s *shuttle) through(common ipc.SQE, e ipc.SQE) ipc.SQE {
	e.Conn, e.Token, e.Key, e.Region = common.Conn, common.Token, common.Key, common.Region
	for range 2000 {
		s.one(&e)
	}
	return e
}

// An operation's way through both shards allocates nothing, in plaintext and encrypted.
func TestNoAllocationPerOperation(t *testing.T) { inBothForms(t, testNoAllocationPerOperation) }

func testNoAllocationPerOperation(t *testing.T, security string) {
	s, common := newShuttle(t, security)
	runs := 2000
	if raceDetector {
		runs = 20 // they are not judged: see there
	}
	for _, c := range shuttled {
		e := s.through(common, c.sqe)
		if n := testing.AllocsPerRun(runs, func() { s.one(&e) }); n > 0 && !raceDetector {
			t.Errorf("%s: %v allocations per operation", c.name, n)
		}
	}
}

// BenchmarkOperation is how long an operation takes both daemons together, on one core and without a kernel between
// them. Of a write most is the while for which the peer holds its acknowledgement back, in case data goes the same way;
// of a read the data acknowledges.
func BenchmarkOperation(b *testing.B) {
	for _, security := range []string{config.Plaintext, config.Encrypted} {
		for _, c := range shuttled {
			b.Run(c.name+", "+security, func(b *testing.B) {
				s, common := newShuttle(b, security)
				e := s.through(common, c.sqe)
				b.SetBytes(int64(e.Len))
				b.ReportAllocs()
				for b.Loop() {
					s.one(&e)
				}
			})
		}
	}
}
