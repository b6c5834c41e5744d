package daemon

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// Daemons joined by virtual links send long frames in datagrams without being told to (PROTOCOL clause 12.2), and alone
// to one that does not take them.
func TestDatagramsOnVirtualLinks(t *testing.T) {
	for _, c := range []struct {
		driver    string // of b
		mtu, want int
		datagrams bool
	}{{"", 9000, 8938, true}, {"", 1500, 1438, true}, {linkdrv.KindAlone, 9000, 9000, false}, {linkdrv.KindAlone, 1500,
		1500, false}, {linkdrv.KindUDP, 9000, 8938, true}} {
		t.Run(fmt.Sprintf("%s/%d", c.driver, c.mtu), func(t *testing.T) {
			a, b := vethNodes(t, c.mtu, 1, func(cfg *config.Config) {
				if cfg.Name == "b" {
					cfg.Driver = c.driver
				}
			})
			server, client := attach(t, a, 64), attach(t, b, 64)
			server.must(&ipc.Message{Kind: ipc.KindListen, Service: "mem"})
			atServer, atClient := dialAccept(t, server, client, "a", "mem")
			for name, e := range map[string]*Embedded{"a": a, "b": b} {
				until(t, name+" settles on how frames travel", deadline, func() bool {
					snap := snapshot(t, e.d)
					for _, p := range snap.Peers {
						for _, path := range p.Paths {
							return path.MTU == c.want && path.Datagrams == c.datagrams
						}
					}
					return false
				})
			}
			const size, ops = 100_003, 20
			region, there := server.register(size * ops)
			key := exportTo(server, client, atServer, region, uint64(len(there)), regmem.RemoteWrite)
			local, mine := client.register(size * ops)
			rng := rand.New(rand.NewPCG(uint64(c.mtu), 1))
			for i := range mine {
				mine[i] = byte(rng.Uint32())
			}
			for k := range ops {
				client.post(ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Token: uint64(k), Key: key,
					RemoteOff: uint64(size * k), Region: local, LocalOff: uint64(size * k), Len: size})
			}
			for range ops {
				if e := client.completion(); e.Status != ipc.StatusOK {
					t.Fatalf("operation %d ended with %v", e.Token, e.Status)
				}
			}
			if !bytes.Equal(there[:size*ops], mine[:size*ops]) {
				t.Error("memory differs")
			}
			if n := countersOf(t, b); n.Loss.FramesLost > 0 {
				t.Errorf("%d frames lost", n.Loss.FramesLost)
			}
		})
	}
}
