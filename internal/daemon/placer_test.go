package daemon

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// Everything is in place after Wait, exactly once, whoever copied it; with more copies than the queue holds, and with none.
func TestPlacer(t *testing.T) {
	for _, threads := range []int{0, 1, 3} {
		p := newPlacer()
		p.start(threads)
		src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
		rand.Read(src)
		for round, size := range []int{leastPlaced, 3000, 9000, 100, 65536} {
			for range 50 {
				clear(dst)
				for at := 0; at < len(src); at += size {
					end := min(at+size, len(src))
					p.Place(dst[at:end], src[at:end])
				}
				p.Wait()
				if !bytes.Equal(dst, src) {
					t.Fatalf("%d threads, round %d: something is not in place", threads, round)
				}
				p.Wait()
			}
		}
		if n := testing.AllocsPerRun(100, func() { p.Place(dst[:4096], src[:4096]); p.Wait() }); n != 0 {
			t.Errorf("%v allocations for each copy", n)
		}
		p.stop()
	}
}

// Writes and reads of several connections at once through daemons with placers: every byte arrives, and keys work until they are revoked.
func TestPlacersEndToEnd(t *testing.T) {
	a, b := nodes(t, 2, func(c *Config) { c.Placers = 2 })
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
	if err != nil || len(st.Status.Shards) != 1 || st.Status.Shards[0].Placers != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: streams[0].atServer, Key: streams[0].key})
	client.post(ipc.SQE{Op: ipc.OpWrite, Conn: streams[0].atClient, Token: 1, Key: streams[0].key, Region: streams[0].local, Len: streamSize})
	if e := client.completion(); e.Status != ipc.StatusKey {
		t.Errorf("a write with a revoked key: %+v", e)
	}
}

// BenchmarkPlacer copies batches of payloads from a receive ring to memory that no cache holds, as a shard does, with and without help.
func BenchmarkPlacer(b *testing.B) {
	const payload, batch = 8192, 32
	ring, memory := make([]byte, 256*payload), make([]byte, 256<<20)
	for i := 0; i < len(memory); i += 4096 { // a page of zeros would be read from cache
		memory[i], ring[i%len(ring)] = 1, 1
	}
	for _, threads := range []int{0, 1, 2} {
		b.Run(fmt.Sprint(threads, " threads"), func(b *testing.B) {
			p := newPlacer()
			p.start(threads)
			defer p.stop()
			b.SetBytes(batch * payload)
			b.ReportAllocs()
			from, to := 0, 0
			for b.Loop() {
				for range batch {
					p.Place(memory[to:to+payload], ring[from:from+payload])
					from, to = (from+payload)%len(ring), (to+payload)%len(memory)
				}
				p.Wait()
			}
		})
	}
}

func TestPlacersRefused(t *testing.T) {
	for _, n := range []int{-1, 5} {
		if err := (&Config{Placers: n, Links: []Link{{Name: "m"}}}).Normalize(); err == nil {
			t.Error(fmt.Sprint(n, " placers are accepted"))
		}
	}
}

// A placer that leaves the memory of a client alone when the client is gone: keys are revoked, memory is unmapped, frames are still coming.
func TestPlacersClientDies(t *testing.T) {
	a, b := nodes(t, 2, func(c *Config) { c.Placers = 1 })
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
