package daemon

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

func init() { lendAfter = 0 } // links are lent whenever there is something on them

// Everything that was asked for is in place when it is over, exactly once, whoever copied it; with more copies than the queue holds, and with none.
func TestCopies(t *testing.T) {
	for _, helpers := range []int{0, 1, 3} {
		c, quit := &copyQueue{}, make(chan struct{})
		var group sync.WaitGroup
		for range helpers {
			group.Go(func() {
				for {
					select {
					case <-quit:
						return
					default:
						c.step()
					}
				}
			})
		}
		wait := func() {
			for !c.over() {
				c.step()
			}
		}
		src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
		rand.Read(src)
		for round, size := range []int{leastCopy, 3000, 9000, 100, 65536} {
			for range 50 {
				clear(dst)
				for at := 0; at < len(src); at += size {
					end := min(at+size, len(src))
					c.ask(dst[at:end], src[at:end])
				}
				wait()
				if !bytes.Equal(dst, src) {
					t.Fatalf("%d helpers, round %d: something is not in place", helpers, round)
				}
			}
		}
		if n := testing.AllocsPerRun(100, func() { c.ask(dst[:4096], src[:4096]); wait() }); n != 0 {
			t.Errorf("%v allocations for each copy", n)
		}
		close(quit)
		group.Wait()
	}
}

// Writes and reads of several connections at once through daemons with receivers: every byte arrives, and keys work until they are revoked.
func TestReceiversEndToEnd(t *testing.T) {
	a, b := nodes(t, 2, func(c *Config) { c.Receivers = 2 })
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "m"})
	const conns = 3
	var streams []*stream
	for range conns {
		streams = append(streams, newStream(t, server, client, "a", "m"))
	}
	for range 10 {
		for i, s := range streams {
			rand.Read(s.source[:streamSize])
			client.post(ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Conn: s.atClient, Token: uint64(i), Key: s.key, Region: s.local, Len: streamSize})
		}
		for range streams {
			if e := client.completion(); e.Status != ipc.StatusOK {
				t.Fatalf("%+v", e)
			}
		}
		for i, s := range streams {
			if e := server.entry(); e.Kind != ipc.CQNotify {
				t.Fatalf("%+v", e)
			}
			if !bytes.Equal(s.target[:streamSize], s.source[:streamSize]) {
				t.Fatalf("connection %d: what was written is not there", i)
			}
			clear(s.source)
			client.post(ipc.SQE{Op: ipc.OpRead, Conn: s.atClient, Token: 9, Key: s.key, Region: s.local, Len: streamSize})
			if e := client.completion(); e.Status != ipc.StatusOK || !bytes.Equal(s.target[:streamSize], s.source[:streamSize]) {
				t.Fatalf("connection %d: %+v, or what was read differs", i, e)
			}
		}
	}
	st, err := a.Daemon().Snapshot()
	if err != nil || len(st.Status.Shards) != 1 || st.Status.Shards[0].Receivers != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	if n := st.Counters.FramesFromReaders; n == 0 {
		t.Error("no link was lent")
	}
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: streams[0].atServer, Key: streams[0].key})
	client.post(ipc.SQE{Op: ipc.OpWrite, Conn: streams[0].atClient, Token: 1, Key: streams[0].key, Region: streams[0].local, Len: streamSize})
	if e := client.completion(); e.Status != ipc.StatusKey {
		t.Errorf("a write with a revoked key: %+v", e)
	}
}

func TestReceiversRefused(t *testing.T) {
	for _, n := range []int{-1, maxReceivers + 1} {
		if err := (&Config{Receivers: n, Links: []Link{{Name: "m"}}}).Normalize(); err == nil {
			t.Error(fmt.Sprint(n, " receivers are accepted"))
		}
	}
}

// A receiver that leaves the memory of a client alone when the client is gone: keys are revoked, memory is unmapped, frames are still coming.
func TestReceiversClientDies(t *testing.T) {
	a, b := nodes(t, 2, func(c *Config) { c.Receivers = 1 })
	for range 5 {
		server, client := attach(t, a, 64), attach(t, b, 64)
		atServer, atClient := connect(t, server, client, "a", "m")
		const size = 4 << 20
		region, _ := server.register(size)
		server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: size, Perm: uint8(regmem.RemoteWrite), Name: "m"})
		key := client.event(ipc.KindAdvert).Key
		local, _ := client.register(size)
		for i := range 8 {
			client.post(ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Token: uint64(i), Key: key, Region: local, Len: size})
		}
		client.completion()
		server.close()
		for range 7 {
			client.completion()
		}
		client.close()
	}
	until(t, "memory released", deadline, func() bool { return a.Daemon().accounts.pinned()+b.Daemon().accounts.pinned() == 0 })
}

// A receiver that is not seen for long loses its link, unless it is at work on it or has handed something over, and is left alone for a while; one that
// returns it because it found nothing is lent the next one at once, one that shares its core is not.
func TestLinksComeBack(t *testing.T) {
	const later = lentSilent + 1
	for _, c := range []struct {
		name         string
		loan         uint32
		beat         time.Duration
		back, rested bool
	}{
		{"not up yet", loanOffer, wakeMost, false, false},
		{"never up", loanOffer, wakeMost + 1, true, false},
		{"up in time", loanReady, wakeMost, false, false},
		{"up too late", loanReady, wakeMost + 1, true, false},
		{"seen lately", loanOut, lentSilent, false, false},
		{"silent", loanOut, later, true, false},
		{"silent at work", loanBusy, later, false, false},
		{"silent after handing over", loanHanded, later, false, false},
		{"returned", loanNone, 0, true, true},
		{"returned, and not noticed for long", loanNone, later, true, true},
		{"returned, the core is shared", loanShared, 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &receiver{bell: -1}
			s, l := &shard{receivers: &receivers{all: []*receiver{r}}}, &link{take: 1}
			eng, err := engine.New(engine.Config{Node: engine.NodeID{1}, Epoch: 1, Grants: regmem.NewTable(rand.Reader)})
			if err != nil {
				t.Fatal(err)
			}
			r.reader = eng.NewReader()
			now := mono.Time(time.Hour)
			s.offer(now, l)
			if l.lent != r || r.loan.Load() != loanOffer {
				t.Fatal("the link is not offered")
			}
			other := &link{take: 1}
			if s.offer(now, other); other.lent != nil {
				t.Fatal("two links are offered to one receiver")
			}
			r.loan.Store(c.loan)
			r.beat.Store(int64(now))
			now = now.Add(c.beat)
			if must := c.loan != loanOut && c.loan != loanBusy && c.loan != loanOffer; s.receivers.waiting() != must {
				t.Errorf("the shard may not sleep: %v", !must)
			}
			if serves := s.serves(now, l); serves != (c.back || c.loan == loanOffer) || c.back != (l.lent == nil) {
				t.Fatalf("the shard serves the link: %v, and has it back: %v", serves, l.lent == nil)
			}
			if s.offer(now, other); (other.lent == r) != c.rested {
				t.Errorf("offered another at once: %v", other.lent == r)
			}
			if s.offer(now.Add(time.Minute), other); (other.lent == r) != c.back {
				t.Errorf("offered another a minute later: %v", other.lent == r)
			}
		})
	}
}

// Receivers that nothing comes for return their links, and wake the shard for them.
func TestIdleReceiversReturnLinks(t *testing.T) {
	a, b := nodesIn(t, Encrypted, 2, func(c *Config) { c.Receivers = 2 })
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "m"})
	s := newStream(t, server, client, "a", "m")
	for range 20 {
		s.write(t)
		for _, e := range []*Embedded{a, b} {
			sh := e.Daemon().shard
			until(t, "links returned", deadline, func() (back bool) {
				back = true
				if err := sh.box.do(func(mono.Time) {
					for _, l := range sh.active {
						back = back && l.lent == nil
					}
				}); err != nil {
					t.Fatal(err)
				}
				return back
			})
		}
	}
	if st, err := a.Daemon().Snapshot(); err != nil || st.Counters.FramesFromReaders == 0 {
		t.Errorf("no link was lent: %v", err)
	}
}
