package daemon

import (
	"fmt"
	"net"
	"testing"

	"multiedge/internal/config"

	"github.com/vishvananda/netlink"
)

// Clause 21.11: shards of nodes with IP links alone reach each other at ports of their own, whatever their numbers; no
// frame comes to another shard's. One end knows where the first shard of the other is. Lanes change nothing of that.
func TestShardsOverIP(t *testing.T) {
	for _, n := range [][3]int{{2, 2, 1}, {1, 3, 1}, {3, 1, 1}, {2, 3, 2}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			wires(t, 0, 0)
			set(t, "lo", netlink.LinkSetUp)
			serve := func(name string, shards int, listen, endpoints []string) *Daemon {
				return serveOn(t, config.Encrypted, name, 0, func(c *config.Config) {
					c.Shards, c.Peers = shards, []config.Peer{{Endpoints: endpoints}}
					for _, at := range listen {
						c.Links = append(c.Links, config.Link{Listen: at, Lanes: n[2]})
					}
				})
			}
			at := []string{"127.0.0.1:9470", "127.0.0.1:9480"}
			a := serve("a", n[0], at, nil)
			b := serve("b", n[1], []string{"127.0.0.1:9570", "127.0.0.1:9580"}, at)
			streams := crossing(t, a, b)
			for range 3 {
				for _, s := range streams {
					s.write(t)
				}
			}
			if n[2] == 1 {
				checkShardStatus(t, a, b, [2]int(n[:2]))
			}
			for k := range n[0] {
				c, err := net.ListenPacket("udp", fmt.Sprint("127.0.0.1:", 9470+k))
				if err == nil {
					c.Close()
					t.Errorf("nobody listens at the port of shard %d", k)
				}
			}
		})
	}
}
