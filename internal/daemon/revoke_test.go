package daemon

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// halting is a link that for a while takes no frame that refers to memory, nor any behind one.
type halting struct {
	linkdrv.Driver
	on atomic.Bool
}

func (d *halting) Send(frames []linkdrv.TxFrame) (int, error) {
	if d.on.Load() {
		for i := range frames {
			if len(frames[i].Bulk) > 0 {
				frames = frames[:i]
				break
			}
		}
	}
	if len(frames) == 0 {
		return 0, nil
	}
	return d.Driver.Send(frames)
}

// halt makes e's first link take no payload until d.on is false. It returns d, and what waits until frames with payload wait.
func halt(t *testing.T, e *Embedded) (d *halting, payloadWaits func()) {
	t.Helper()
	s := e.d.shard
	on := func(f func()) {
		t.Helper()
		if err := s.box.do(func(mono.Time) { f() }); err != nil {
			t.Fatal(err)
		}
	}
	d = &halting{}
	d.on.Store(true)
	on(func() { d.Driver, s.active[0].drv = s.active[0].drv, d })
	return d, func() {
		t.Helper()
		until(t, "frames that point into the memory wait", deadline, func() (wait bool) {
			on(func() {
				wait = slices.ContainsFunc(s.active[0].tx, func(f linkdrv.TxFrame) bool { return len(f.Bulk) > 0 })
			})
			return wait
		})
	}
}

// What is written into memory after it was revoked does not reach a peer that was reading it, not even in frames that waited for their link meanwhile.
func TestRevokeEndsWaitingFrames(t *testing.T) {
	a, b := nodes(t, 1, func(c *Config) { c.Checksum = "header" })
	server, client := attach(t, a, 16), attach(t, b, 16)
	atServer, atClient := connect(t, server, client, "a", "mem")
	const size = 8192
	region, mem := server.register(size)
	local, got := client.register(size)
	for i := range mem {
		mem[i], got[i] = 'a', '-'
	}
	key := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: size, Perm: 1, Name: "x"}).Key
	client.event(ipc.KindAdvert)

	d, payloadWaits := halt(t, a)
	client.post(ipc.SQE{Op: ipc.OpRead, Conn: atClient, Key: key, Region: local, Len: size})
	payloadWaits()
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: atServer, Key: key})
	for i := range mem {
		mem[i] = 'b'
	}
	d.on.Store(false)
	if e := client.completion(); e.Status != ipc.StatusKey || bytes.Contains(got, []byte("b")) {
		t.Errorf("the read ended with %v; %d bytes are of later", e.Status, bytes.Count(got, []byte("b")))
	}
}

// What is written into memory after a write from it has failed does not reach the peer, though frames of the write waited for their link meanwhile.
func TestFailureEndsWaitingFrames(t *testing.T) {
	a, b := nodes(t, 1, func(c *Config) { c.Checksum = "header" })
	server, client := attach(t, a, 16), attach(t, b, 16)
	atServer, atClient := connect(t, server, client, "a", "mem")
	const size = 8192
	region, mem := server.register(size)
	local, sent := client.register(size)
	for i := range sent {
		mem[i], sent[i] = '-', 'a'
	}
	key := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: size, Perm: 2, Name: "x"}).Key
	client.event(ipc.KindAdvert)

	d, payloadWaits := halt(t, b)
	client.post(ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Region: local, Len: size})
	payloadWaits()
	client.must(&ipc.Message{Kind: ipc.KindAbort, Conn: atClient})
	if e := client.completion(); e.Status != ipc.StatusAborted {
		t.Errorf("the write ended with %v", e.Status)
	}
	for i := range sent {
		sent[i] = 'b'
	}
	d.on.Store(false)
	server.event(ipc.KindClosed) // it left after them
	if n := bytes.Count(mem, []byte("b")); n > 0 {
		t.Errorf("%d bytes of later arrived", n)
	}
}

// Of the frames that wait for a link those go that refer to memory that goes away, however it does, and no others.
func TestOthersFramesWaitOn(t *testing.T) {
	const size, half = 8192, 4096
	const first, rest, second, others, bare = 0, 1, 2, 3, 4 // what the waiting frames refer to: halves of a region, another one, another client's, none
	for _, of := range []struct {
		name string
		end  func(c *testClient, conn, region uint32, key uint64)
		stay []int
	}{
		{"revoked", func(c *testClient, conn, _ uint32, key uint64) {
			c.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: conn, Key: key})
		}, []int{rest, second, others, bare}},
		{"deregistered", func(c *testClient, _, region uint32, _ uint64) {
			c.must(&ipc.Message{Kind: ipc.KindDeregister, Region: region})
		}, []int{second, others, bare}},
		{"connection aborted", func(c *testClient, conn, _ uint32, _ uint64) {
			c.must(&ipc.Message{Kind: ipc.KindAbort, Conn: conn})
		}, []int{rest, second, others, bare}},
		{"client gone", func(c *testClient, _, _ uint32, _ uint64) { c.close() }, []int{others, bare}},
	} {
		t.Run(of.name, func(t *testing.T) {
			a, b := nodes(t, 1, nil)
			server, other, client := attach(t, a, 16), attach(t, a, 16), attach(t, b, 16)
			atServer, _ := connect(t, server, client, "a", "mem")
			region, _ := server.register(size)
			next, _ := server.register(size)
			foreign, _ := other.register(size)
			key := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: half, Perm: 1, Name: "x"}).Key

			s, d := a.d.shard, &halting{}
			l := s.active[0]
			on := func(f func()) {
				t.Helper()
				if err := s.box.do(func(mono.Time) { f() }); err != nil {
					t.Fatal(err)
				}
			}
			d.on.Store(true)
			on(func() {
				d.Driver, l.drv = l.drv, d
				l.batch = s.takeBatch()
				l.batch.users = 1
				mine, his := s.clients[0].regions, s.clients[1].regions
				m := mine.get(region).Mem.Bytes()
				for i, bulk := range [][]byte{first: m[:half], rest: m[half:], second: mine.get(next).Mem.Bytes(), others: his.get(foreign).Mem.Bytes(), bare: nil} {
					head := make([]byte, 64)
					head[0] = byte(i)
					l.tx = append(l.tx, linkdrv.TxFrame{Head: head, Bulk: bulk})
				}
				s.blocked(l, true)
			})
			of.end(server, atServer, region, key)
			if of.name == "client gone" {
				until(t, "the client is forgotten", deadline, func() (gone bool) {
					on(func() { gone = s.clients[0] == nil })
					return gone
				})
			}
			on(func() {
				var stay []int
				for _, f := range l.tx {
					stay = append(stay, int(f.Head[0]))
				}
				if !slices.Equal(stay, of.stay) || l.discards != uint64(bare+1-len(of.stay)) {
					t.Errorf("%v wait on, want %v; %d count as discarded", stay, of.stay, l.discards)
				}
				s.dropUnsent(l)
			})
			d.on.Store(false)
		})
	}
}
