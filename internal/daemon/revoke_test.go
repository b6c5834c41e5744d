package daemon

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// halting is a link that for a while takes no frame that refers to memory, nor any behind one.
type halting struct {
	linkdrv.Driver
	on    atomic.Bool
	waits atomic.Bool // a frame was not taken
}

func (d *halting) Send(frames []linkdrv.TxFrame) (int, error) {
	if d.on.Load() {
		for i := range frames {
			if len(frames[i].Bulk) > 0 {
				d.waits.Store(true)
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

// halt makes e's links take no payload until d.on is false. It returns d, and what waits until frames with payload
// wait.
func halt(t *testing.T, e *Embedded) (d *halting, payloadWaits func()) {
	t.Helper()
	d = &halting{}
	d.on.Store(true)
	if err := e.d.shard.Do(func(now mono.Time) {
		e.d.shard.SetWrap(now, func(_ int, _ string, drv linkdrv.Driver) linkdrv.Driver {
			d.Driver = drv
			return d
		})
	}); err != nil {
		t.Fatal(err)
	}
	return d, func() {
		t.Helper()
		until(t, "frames that point into the memory wait", deadline, d.waits.Load)
	}
}

// What is written into memory after it was revoked does not reach a peer that was reading it, not even in frames that
// waited for their link meanwhile.
func TestRevokeEndsWaitingFrames(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.Checksum = "header" })
	server, client := attach(t, a, 16), attach(t, b, 16)
	atServer, atClient := connect(t, server, client, "a", "mem")
	const size = 8192
	region, mem := server.register(size)
	local, got := client.register(size)
	for i := range mem {
		mem[i], got[i] = 'a', '-'
	}
	key := exportTo(server, client, atServer, region, size, regmem.RemoteRead)

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

// What is written into memory after a write from it has failed does not reach the peer, though frames of the write
// waited for their link meanwhile.
func TestFailureEndsWaitingFrames(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.Checksum = "header" })
	server, client := attach(t, a, 16), attach(t, b, 16)
	atServer, atClient := connect(t, server, client, "a", "mem")
	const size = 8192
	region, mem := server.register(size)
	local, sent := client.register(size)
	for i := range sent {
		mem[i], sent[i] = '-', 'a'
	}
	key := exportTo(server, client, atServer, region, size, regmem.RemoteWrite)

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
	// what the waiting frames refer to: halves of a region, another one, another client's, none
	const first, rest, second, others, bare = 0, 1, 2, 3, 4
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
			key := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: half, Perm: 1,
				Name: "x"}).Key

			d, _ := halt(t, a)
			in := shard.Inside{Shard: a.d.shard}
			m := in.Memory(0, region)
			in.Queue([][]byte{first: m[:half], rest: m[half:], second: in.Memory(0, next),
				others: in.Memory(1, foreign), bare: nil})
			of.end(server, atServer, region, key)
			if of.name == "client gone" {
				until(t, "the client is forgotten", deadline, func() bool { return in.Clients() == 1 })
			}
			if stay, discarded := in.Queued(); !slices.Equal(stay, of.stay) ||
				discarded != uint64(bare+1-len(of.stay)) {
				t.Errorf("%v wait on, want %v; %d count as discarded", stay, of.stay, discarded)
			}
			d.on.Store(false)
		})
	}
}
