package edge

import (
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// A loop that waits for the descriptor is told of an operation that another goroutine's look found done.
func TestArmSeesWhatOthersTook(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	must(t, second(p.client.PollFD()))
	p.f.setHold(true)
	w := Work{Kind: Write, Local: p.local, Len: 8, Remote: p.remote}
	first, err := p.out.Post(NoWait, &w)
	must(t, err)
	other, err := p.out.Post(NoWait, &w)
	must(t, err)
	p.client.Poll() // the loop looks: nothing yet
	p.f.release()
	eventually(t, "the other operation is done", 10*time.Second, other.Done)
	if first.settled() && p.client.Arm() {
		t.Error("Arm lets the loop sleep on an operation that is done")
	}
}

// A connection whose peer closed it, with more notifications than its owner ever takes, is gone when its owner closes
// it too.
func TestUntakenNotificationsKeepNoConnection(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	ha := newHost(t, fab, "a", nil)
	hb := newHost(t, fab, "b", func(c *config.Config) { c.Limits.ConnsPerUser = 2 })
	a, b := ha.open(Config{}), hb.open(Config{})
	for range 4 {
		out, in := pairOn(t, ctx, a, b, "s")
		r, err := b.Register(4096)
		must(t, err)
		must(t, second(r.Export(in, "m", RemoteWrite, 0, 4096)))
		m, err := out.Import(ctx, "m")
		must(t, err)
		for range 3 * ipc.NotifyCredit {
			must(t, second(out.Post(ctx, &Work{Kind: Write, Flags: Notify, Inline: []byte("x"), Remote: m})))
		}
		must(t, out.Close())
		in.Close() // the daemon may have told us of the end, or not
		eventually(t, "the daemon has no connection left", 10*time.Second, func() bool {
			snap, err := hb.d.Snapshot()
			return err == nil && len(snap.Conns) == 0
		})
		must(t, r.Close())
	}
}
