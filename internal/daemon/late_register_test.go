package daemon

import (
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/shard"
)

// A registration that was under way when its client was evicted and forgotten comes to nothing: its pages would stay in
// the exchange after they were unmapped.
func TestRegisterOfWhoHasGone(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Copy = config.CopyRemap })
	// What the control connection wrote of itself is seen here by way of the shard, which this asks before it is asked
	// to evict.
	attach(t, a, 64).must(&ipc.Message{Kind: ipc.KindListen, Service: "x"})
	var ss *controlConn
	a.d.mu.Lock()
	for ss = range a.d.controls {
	}
	a.d.mu.Unlock()
	in := shard.Inside{Shard: a.d.shard}
	c := in.Evict(0)
	<-c.Gone()
	if _, err := ss.register(&ipc.Message{ID: 1, Kind: ipc.KindRegister, Size: 1 << 20}); err == nil {
		t.Error("memory was registered")
	}
	if regions, spaces := in.Kept(c); regions+spaces != 0 {
		t.Errorf("%d regions of it are left, and %d in the exchange", regions, spaces)
	}
}
