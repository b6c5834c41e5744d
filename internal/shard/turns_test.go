package shard

import (
	"errors"
	"sync"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// spacious makes a client of a user, with a space of so many chunks, of which nothing is resident.
func spacious(t *testing.T, u *User, chunks uint64) (*Client, *regmem.Region) {
	t.Helper()
	space, err := regmem.NewSpace(regmem.SpaceConfig{Size: chunks << 12, Chunk: 1 << 12, Pin: 1 << 20, Ask: taken})
	if err != nil {
		t.Fatal(err)
	}
	mem, err := regmem.Distant(chunks << 12)
	if err != nil {
		t.Fatal(err)
	}
	c, r := &Client{user: u}, &regmem.Region{Mem: mem, Back: space}
	c.regions.add(r, 1)
	c.regions.finish(r)
	return c, r
}

// A user whose 32 clients each go through a range without end adds one piece of bounded size to an iteration, and a
// request of another user waits for one such piece, not for 32. Requests of the daemon's own wait for none. Each piece
// is paid for.
func TestRequestsTakeTurns(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	const clients, pieces, chunksOfPiece = 32, 20, 256 << 12
	u := NewUser(1)
	var paid, served int
	var mu sync.Mutex
	var group sync.WaitGroup
	for range clients {
		c, r := spacious(t, u, pieces*chunksOfPiece)
		by := Caller{Gone: func() bool { return false }, Pace: func() { mu.Lock(); paid++; mu.Unlock() }}
		group.Go(func() {
			err := s.piecewise(c, by, r.ID, 0, uint64(r.Mem.Len()), func(sp *regmem.Space, off, n uint64) uint64 {
				served++ // as the shard
				_, went := sp.Resident(off, n)
				return went
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	full := func(waiting int32) {
		waitFor(t, "all clients' pieces", mostWait, func() bool { return s.box.count.Load() == waiting })
	}
	full(clients)
	for range 50 {
		before := served
		if s.Iterate(mono.Now()); served != before+1 {
			t.Fatalf("%d pieces in one iteration", served-before)
		}
		full(clients)
	}

	jobs, lone := 0, 0
	_ = s.box.post(func(mono.Time) { jobs++ })
	_ = s.box.queue(NewUser(2), func(mono.Time) { lone++ })
	s.Iterate(mono.Now())
	full(clients + 1)
	if jobs != 1 {
		t.Error("a job of the daemon's own waits for pieces")
	}
	if s.Iterate(mono.Now()); lone != 1 {
		t.Error("another user's request waits for more than one piece")
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			s.Iterate(mono.Now())
		}
	}
	if served != clients*pieces || paid != clients*(pieces-1) {
		t.Errorf("%d pieces of %d, %d paid for", served, clients*pieces, paid)
	}
}

// A request in pieces ends when its client has gone.
func TestPiecesEndWithTheirClient(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	c, r := spacious(t, NewUser(1), 1<<30)
	paid := 0
	by := Caller{Gone: func() bool { return paid == 3 }, Pace: func() { paid++ }}
	if _, err := s.Usage(c, &ipc.Message{Region: r.ID, Size: uint64(r.Mem.Len())}, by); !errors.Is(err, errGone) ||
		paid != 3 {
		t.Errorf("%v after %d pieces", err, paid+1)
	}
}

// A region with thousands of keys is deregistered in pieces. From the first on no operation can use it.
func TestRegionEndsInPieces(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := &Client{user: NewUser(1), conns: map[engine.ConnID]*Conn{}, rings: new(ipc.Rings)}
	r := &regmem.Region{Mem: regmem.Wrap(make([]byte, 4096))}
	c.regions.add(r, 1)
	c.regions.finish(r)
	const keys, most = 641, 64
	for range keys {
		if _, err := s.grants.Grant(r, 1, regmem.RemoteRead, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() { _, err := s.DropRegion(c, r.ID); done <- err }()
	for left := keys; left > 0; {
		waitFor(t, "the next piece", mostWait, func() bool { return s.box.count.Load() == 1 })
		s.Iterate(mono.Now())
		now := s.grants.Len()
		if left-now > most {
			t.Fatalf("%d keys revoked in one iteration", left-now)
		}
		if left = now; c.regions.get(r.ID) != nil {
			t.Fatal("operations can use the region")
		}
	}
	if err := <-done; err != nil || c.regions.n != 0 || c.regions.offered != 0 {
		t.Errorf("%v, %d regions are left", err, c.regions.n)
	}
}

// exporting makes a client with so many connections, each of which was given so many keys.
func exporting(t *testing.T, s *Shard, conns, keys int) *Client {
	t.Helper()
	c := attached(t, s, NewUser(1), conns)
	r := &regmem.Region{Mem: regmem.Wrap(make([]byte, 4096))}
	c.regions.add(r, 1)
	c.regions.finish(r)
	for range conns {
		if _, err := s.Dial(mono.Now(), c, &ipc.Message{Peer: "off", Service: "x", Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for id, cn := range c.conns {
		cn.state = connOpen
		s.answered(cn)
		for range keys {
			if _, err := s.grants.Grant(r, uint64(id), regmem.RemoteRead, 0, 1); err != nil {
				t.Fatal(err)
			}
			c.exported(1)
		}
	}
	return c
}

// Connections with very many keys end in pieces, one with very many and very many with some. Their client hears of the
// end of each when no key of it is left.
func TestConnectionsEndInPieces(t *testing.T) {
	for _, of := range []struct{ conns, keys int }{{1, 1000}, {100, 10}, {10, 100}} {
		s := unstarted(t, still(t))
		c := exporting(t, s, of.conns, of.keys)
		now := mono.Now()
		for id := range c.conns {
			s.eng.Abort(now, id, engine.StatusReset)
		}
		told := 0
		for left := of.conns * of.keys; left > 0; {
			s.Iterate(now)
			most := left - s.grants.Len()
			if left -= most; most == 0 || most > 2*revokePiece {
				t.Fatalf("%+v: %d keys revoked in one iteration", of, most)
			}
			for _, m := range c.out.msgs[told:] {
				if told++; m.Kind != ipc.KindClosed || s.grants.Owned(uint64(m.Conn)) > 0 {
					t.Errorf("%+v: told %v with keys left", of, m.Kind)
				}
			}
		}
		s.Iterate(now)
		if told = len(c.out.msgs); told != of.conns || c.exports != 0 || len(c.conns) != 0 {
			t.Errorf("%+v: told %d times, %d exports, %d connections left", of, told, c.exports, len(c.conns))
		}
		s.Shutdown()
	}
}

// A client with very many keys ends in pieces; its memory is freed when no key is left.
func TestKeysOfDeadClientsEndInPieces(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := exporting(t, s, 10, 500)
	now := mono.Now()
	s.detach(now, c)
	for left := s.grants.Len(); left > 0; {
		select {
		case <-c.Gone():
			t.Fatalf("the client is gone with %d keys left", left)
		default:
		}
		s.Iterate(now)
		most := left - s.grants.Len()
		if left -= most; most > mostDropped {
			t.Fatalf("%d keys revoked in one iteration", most)
		}
	}
	s.Iterate(now)
	<-c.Gone()
}

// Very many connections of a user that end at once add one piece: another request of the user waits for that one.
func TestEndedConnectionsShareAPiece(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	const conns = 20 * revokePiece
	c := exporting(t, s, conns, 1)
	now := mono.Now()
	for id := range c.conns {
		s.eng.Abort(now, id, engine.StatusReset)
	}
	s.Iterate(now)
	if n := s.box.count.Load(); n != 1 {
		t.Errorf("%d pieces wait", n)
	}
	served := false
	if err := s.box.queue(c.user, func(mono.Time) { served = true }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Iterate(now)
	}
	if !served {
		t.Error("a request of their user waits for more than one piece")
	}
	if s.grants.Len() == 0 {
		t.Error("the connections ended at once")
	}
}

// Whoever hears of the end of a connection may write to its memory at once: frames that wait for a blocked link and may
// have bytes of it are gone by then, however many keys are left. Others wait on.
func TestFramesOfEndedConnectionsGo(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := exporting(t, s, 1, revokePiece)
	var cn *Conn
	for _, cn = range c.conns {
	}
	r := c.regions.slots[0].region
	if _, err := s.grants.Grant(r, uint64(cn.id), regmem.RemoteRead, 2048, 1); err != nil { // the last to be revoked
		t.Fatal(err)
	}
	c.exported(1)
	s.clients.mayRevoke = revokePiece
	l := s.links.active[0]
	l.unsent = append(l.batch.Frames, linkdrv.TxFrame{Head: []byte{1}, Bulk: r.Mem.Bytes()[2048:2049]},
		linkdrv.TxFrame{Head: []byte{2}})
	s.blocked(l, true)
	m, err := s.Abort(mono.Now(), cn, &ipc.Message{ID: 1, Kind: ipc.KindAbort})
	if m == nil || err != nil || s.grants.Len() != 1 {
		t.Errorf("reply %v, %v; %d keys are left", m, err, s.grants.Len())
	}
	if len(l.unsent) != 1 || l.unsent[0].Head[0] != 2 || l.discards != 1 {
		t.Errorf("%d frames wait, %d discarded", len(l.unsent), l.discards)
	}
	s.dropUnsent(l)
	for range 2 {
		s.Iterate(mono.Now())
	}
	if s.grants.Len() != 0 || c.exports != 0 || len(c.conns) != 0 {
		t.Errorf("%d keys, %d exports, %d connections are left", s.grants.Len(), c.exports, len(c.conns))
	}
}

// Dead clients with very many regions are gone through in pieces, too.
func TestRegionsOfDeadClientsEndInPieces(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	const clients, regions = 3, 5 * mostDropped
	now := mono.Now()
	var all []*Client
	for range clients {
		c := attached(t, s, NewUser(1), 1)
		for range regions {
			c.regions.add(&regmem.Region{Mem: regmem.Wrap(make([]byte, 1))}, regions)
		}
		all = append(all, c)
		s.detach(now, c)
	}
	walked, rounds := 0, 0
	for ; s.clients.dying > 0 && rounds < 1000; rounds++ {
		s.Iterate(now)
		sum := 0
		for _, c := range all {
			sum += c.reaped
		}
		if sum-walked > mostDropped {
			t.Fatalf("%d places in one iteration", sum-walked)
		}
		walked = sum
	}
	if s.clients.dying > 0 {
		t.Errorf("%d clients are left after %d iterations", s.clients.dying, rounds)
	}
}
