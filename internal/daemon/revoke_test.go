package daemon

import (
	"bytes"
	"sync/atomic"
	"testing"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// halting is a link that takes no frames for a while.
type halting struct {
	linkdrv.Driver
	on atomic.Bool
}

func (d *halting) Send(frames []linkdrv.TxFrame) (int, error) {
	if d.on.Load() {
		return 0, nil
	}
	return d.Driver.Send(frames)
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

	s, d := a.d.shard, &halting{}
	on := func(f func()) {
		t.Helper()
		if err := s.box.do(func(mono.Time) { f() }); err != nil {
			t.Fatal(err)
		}
	}
	d.on.Store(true)
	on(func() { d.Driver, s.active[0].drv = s.active[0].drv, d })
	client.post(ipc.SQE{Op: ipc.OpRead, Conn: atClient, Key: key, Region: local, Len: size})
	until(t, "frames that point into the memory wait", deadline, func() (wait bool) {
		on(func() {
			for _, f := range s.active[0].tx {
				wait = wait || len(f.Bulk) > 0
			}
		})
		return wait
	})
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: atServer, Key: key})
	for i := range mem {
		mem[i] = 'b'
	}
	d.on.Store(false)
	if e := client.completion(); e.Status != ipc.StatusKey || bytes.Contains(got, []byte("b")) {
		t.Errorf("the read ended with %v; %d bytes are of later", e.Status, bytes.Count(got, []byte("b")))
	}
}
