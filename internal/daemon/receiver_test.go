package daemon

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/shard"
	"multiedge/regmem"
)

func init() { shard.LendAfter = 0 } // links are lent whenever there is something on them

// As a daemon does: under the race detector a single large space of another test leaves no piece of that size.
func init() {
	if err := regmem.SetAside(); err != nil {
		panic(err)
	}
}

// Writes and reads of several connections at once through daemons with receivers: every byte arrives, and keys work
// until they are revoked.
func TestReceiversEndToEnd(t *testing.T) {
	a, b := nodes(t, 2, func(c *config.Config) { c.Receivers = 2 })
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "m"})
	const conns = 3
	var streams []*stream
	for range conns {
		streams = append(streams, newStream(t, server, client, "a", "m"))
	}
	lent := func() bool { return snapshot(t, a.Daemon()).Counters.Placing.FramesFromReaders > 0 }
	// On a busy machine links are not lent for some time.
	for round, began := 0, time.Now(); round < 10 || !lent() && time.Since(began) < deadline; round++ {
		for i, s := range streams {
			rand.Read(s.source[:streamSize])
			client.post(ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Conn: s.atClient, Token: uint64(i), Key: s.key,
				Region: s.local, Len: streamSize})
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
			client.post(ipc.SQE{Op: ipc.OpRead, Conn: s.atClient, Token: 9, Key: s.key, Region: s.local,
				Len: streamSize})
			if e := client.completion(); e.Status != ipc.StatusOK || !bytes.Equal(s.target[:streamSize],
				s.source[:streamSize]) {
				t.Fatalf("connection %d: %+v, or what was read differs", i, e)
			}
		}
	}
	st, err := a.Daemon().Snapshot()
	if err != nil || len(st.Status.Shards) != 1 || st.Status.Shards[0].Receivers != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	if !lent() {
		t.Errorf("no link was lent within %v", deadline)
	}
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: streams[0].atServer, Key: streams[0].key})
	client.post(ipc.SQE{Op: ipc.OpWrite, Conn: streams[0].atClient, Token: 1, Key: streams[0].key,
		Region: streams[0].local, Len: streamSize})
	if e := client.completion(); e.Status != ipc.StatusKey {
		t.Errorf("a write with a revoked key: %+v", e)
	}
}

func TestReceiversRefused(t *testing.T) {
	for _, n := range []int{-1, config.MaxReceivers + 1} {
		if err := (&config.Config{Receivers: n, Links: []config.Link{{Name: "m"}}}).Normalize(); err == nil {
			t.Error(fmt.Sprint(n, " receivers are accepted"))
		}
	}
}

// A receiver that leaves the memory of a client alone when the client is gone: keys are revoked, memory is unmapped,
// frames are still coming.
func TestReceiversClientDies(t *testing.T) {
	a, b := nodes(t, 2, func(c *config.Config) { c.Receivers = 1 })
	for range 5 {
		server, client := attach(t, a, 64), attach(t, b, 64)
		atServer, atClient := connect(t, server, client, "a", "m")
		const size = 4 << 20
		region, _ := server.register(size)
		key := exportTo(server, client, atServer, region, size, regmem.RemoteWrite)
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
	until(t, "memory released", deadline, func() bool {
		return a.Daemon().accounts.Pinned()+b.Daemon().accounts.Pinned() == 0
	})
}

// Receivers that nothing comes for return their links, and wake the shard for them.
func TestIdleReceiversReturnLinks(t *testing.T) {
	a, b := nodesIn(t, config.Encrypted, 2, func(c *config.Config) { c.Receivers = 2 })
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "m"})
	s := newStream(t, server, client, "a", "m")
	lent := func() bool { return snapshot(t, a.Daemon()).Counters.Placing.FramesFromReaders > 0 }
	// On a busy machine links are not lent for some time.
	for round, began := 0, time.Now(); round < 20 || !lent() && time.Since(began) < deadline; round++ {
		s.write(t)
		for _, e := range []*Embedded{a, b} {
			until(t, "links returned", deadline, func() bool { return shard.Inside{Shard: e.d.shard}.Lent() == 0 })
		}
	}
	if !lent() {
		t.Errorf("no link was lent within %v", deadline)
	}
}
