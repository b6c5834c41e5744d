package edge

import (
	"context"
	"errors"
	"testing"

	"multiedge/internal/ipc"
)

// Memory is imported past any number of notifications that lie unread, but the end of the connection comes after them: who waits for the one or asks
// for an export meanwhile is told to take the other.
func TestEndBehindUnreadNotifications(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	for range ipc.NotifyCredit + 10 {
		op, err := p.out.PostWait(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote, Flags: Notify})
		must(t, err)
		must(t, op.Wait(ctx))
	}
	_, err := p.local.Export(p.out, "back", RemoteRead, 0, 1)
	must(t, err)
	must(t, second(p.in.Import(ctx, "back")))

	must(t, p.out.Close())
	must(t, second(p.server.Status(ctx, "status"))) // the daemon has nothing more to say
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := p.in.Import(over, "never"); !errors.Is(err, context.Canceled) || !errors.Is(err, errUnread) {
		t.Errorf("import: %v", err)
	}
	if _, err := p.exported.Export(p.in, "late", RemoteRead, 0, 1); !errors.Is(err, errNoConn) || !errors.Is(err, errUnread) {
		t.Errorf("export: %v", err)
	}
	if err := p.in.Err(); err != nil {
		t.Fatalf("the end came first: %v", err)
	}
	for range creditBatch {
		must(t, second(p.in.WaitNotify(ctx)))
	}
	if _, err := p.in.Import(ctx, "never"); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("import afterwards: %v", err)
	}
}
