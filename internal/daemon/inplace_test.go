package daemon

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// vethNodes starts two embedded daemons joined by real links, in a network namespace of the test's own.
func vethNodes(t *testing.T, mtu, links int, change func(*config.Config)) (a, b *Embedded) {
	t.Helper()
	wires(t, links, mtu)
	var of [2][]config.Link
	for i := range links {
		of[0] = append(of[0], config.Link{Name: fmt.Sprint("a", i)})
		of[1] = append(of[1], config.Link{Name: fmt.Sprint("b", i)})
	}
	var e [2]*Embedded
	for k, name := range []string{"a", "b"} {
		cfg := plaintext(config.Config{Name: name, Links: of[k], Poll: "block"})
		if change != nil {
			change(&cfg)
		}
		var err error
		if e[k], err = NewEmbedded(cfg, Options{Log: logTo(t)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e[k].Close() })
	}
	return e[0], e[1]
}

func countersOf(t *testing.T, e *Embedded) (c engine.Counters) {
	t.Helper()
	must(t, e.d.shard.Do(func(mono.Time) { c = e.d.shard.Engine().Count }))
	return c
}

// Large writes and reads over real links of a size for which the driver scatters: the kernel puts payloads where they
// belong, every byte is right and those beside are untouched. With two connections busy at once most forecasts go
// wrong.
func TestReceiveInPlace(t *testing.T) {
	for _, shape := range []struct{ links, conns int }{{1, 1}, {2, 1}, {1, 2}, {2, 3}} {
		links, conns := shape.links, shape.conns
		const size, ops, gap = 100_003, 40, 64
		a, b := vethNodes(t, 1500, links, func(c *config.Config) { c.Checksum, c.Driver = "header", linkdrv.KindAlone })
		server, client := attach(t, a, 64), attach(t, b, 64)
		server.must(&ipc.Message{Kind: ipc.KindListen, Service: "mem"})
		rng := rand.New(rand.NewPCG(uint64(links), 9))
		local, mine := client.register(size * ops)
		back, read := client.register((size + gap) * ops)
		for i := range mine {
			mine[i] = byte(rng.Uint32())
		}
		type end struct {
			conn  uint32
			key   uint64
			bytes []byte
		}
		ends := make([]end, conns)
		for k := range ends {
			atServer, atClient := dialAccept(t, server, client, "a", "mem")
			region, mem := server.register((size + gap) * ops)
			ends[k] = end{atClient, exportTo(server, client, atServer, region, uint64(len(mem)),
				regmem.RemoteWrite|regmem.RemoteRead), mem}
		}
		run := func(op ipc.Op) {
			t.Helper()
			for k := range ops {
				x := &ends[k%conns]
				e := ipc.SQE{Op: op, Conn: x.conn, Token: uint64(k), Key: x.key, RemoteOff: uint64((size + gap) * k),
					Region: local, LocalOff: uint64(size * k), Len: size}
				if op == ipc.OpRead {
					e.Region, e.LocalOff = back, e.RemoteOff
				}
				client.post(e)
			}
			for range ops {
				if e := client.completion(); e.Status != ipc.StatusOK {
					t.Fatalf("operation %d ended with %v", e.Token, e.Status)
				}
			}
		}
		run(ipc.OpWrite)
		run(ipc.OpRead)
		zero := make([]byte, gap)
		for k := range ops {
			for what, m := range map[string][]byte{"remote": ends[k%conns].bytes, "read": read} {
				at := (size + gap) * k
				if !bytes.Equal(m[at:at+size], mine[size*k:][:size]) {
					t.Errorf("%d links, operation %d: %s memory differs", links, k, what)
				}
				if !bytes.Equal(m[at+size:at+size+gap], zero) {
					t.Errorf("%d links, operation %d: bytes behind it in %s memory changed", links, k, what)
				}
			}
		}
		for name, e := range map[string]*Embedded{"a": a, "b": b} {
			c := countersOf(t, e)
			t.Logf("%d links, %d connections, node %s: %d data frames, %d payloads in place, %d lost", links, conns,
				name, c.Traffic.DataFramesReceived, c.Placing.FramesInPlace, c.Loss.FramesLost)
			if links == 1 && conns == 1 && c.Placing.FramesInPlace == 0 {
				t.Errorf("%d links, node %s: no payload was received in place", links, name)
			}
			if c.Reject.RejectedMalformed+c.Reject.RejectedHeaderSum > 0 {
				t.Errorf("%d links, node %s: %+v", links, name, c)
			}
		}
	}
}
