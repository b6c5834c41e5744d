package daemon

import (
	"cmp"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
)

// The window of profile paper is the paper's 512 frames whatever driver receives: three quarters of the slots that a
// link announces may be used (PROTOCOL clause 8.7).
func TestPaperWindowOnEveryDriver(t *testing.T) {
	for _, driver := range []string{"", linkdrv.KindAlone, linkdrv.KindRing, linkdrv.KindMmsg, linkdrv.KindUDP} {
		for _, mtu := range []int{1500, 9000} {
			a, _ := vethNodes(t, mtu, 1, func(c *config.Config) { c.Profile, c.Driver = "paper", driver })
			info := shard.Inside{Shard: a.d.shard}.Link()
			if info.RxSlots*3/4 < 512 {
				t.Errorf("driver %q, MTU %d: %s with %d slots", cmp.Or(driver, "none named"), mtu, info.Kind,
					info.RxSlots)
			}
		}
	}
}
