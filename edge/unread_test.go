package edge

import (
	"errors"
	"testing"

	"multiedge/internal/ipc"
)

// The end of a connection ends what does not take notifications, however many lie unread. They come first all the same:
// every one can be taken, and only then is the connection over for who takes them.
func TestEndBehindUnreadNotifications(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	client, server := newHost(t, f, "a", nil).open(Config{}), newHost(t, f, "b", nil).open(Config{})
	out, in := pairOn(t, ctx, client, server, "s")
	theirs, err := client.Register(4096)
	must(t, err)
	ours, err := server.Register(4096)
	must(t, err)
	must(t, second(ours.Export(in, "m", RemoteWrite, 0, 4096)))
	to, err := out.Import(ctx, "m")
	must(t, err)
	const sent = ipc.NotifyCredit + 10
	for i := range sent {
		op, err := out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: to, Flags: Notify, Imm: uint32(i)})
		must(t, err)
		must(t, op.Wait(ctx))
	}
	must(t, second(theirs.Export(out, "back", RemoteWrite, 0, 1)))
	back, err := in.Import(ctx, "back") // past all of them
	must(t, err)

	imported := make(chan error, 1)
	go func() { imported <- second(in.Import(ctx, "never")) }()
	must(t, out.Close())
	if err := <-imported; !errors.Is(err, ErrPeerClosed) {
		t.Errorf("import that waited: %v", err)
	}
	for what, err := range map[string]error{
		"import": second(in.Import(ctx, "never")), "export": second(ours.Export(in, "late", RemoteWrite, 0, 1)),
		"post": second(in.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: back})),
	} {
		if !errors.Is(err, ErrPeerClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := in.Err(); err != nil {
		t.Errorf("the end came before the last notifications: %v", err)
	}
	for i := range sent {
		if n, err := in.WaitNotify(ctx); err != nil || n.Imm != uint32(i) {
			t.Fatalf("notification %d of %d: %+v, %v", i, sent, n, err)
		}
	}
	if _, err := in.WaitNotify(ctx); !errors.Is(err, ErrPeerClosed) || err != in.Err() {
		t.Errorf("after the last: %v; the connection: %v", err, in.Err())
	}
}

// Who closes a connection that has ended gives up the notifications that lie unread at the daemon too, which forgets
// it.
func TestCloseWithUnreadNotifications(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	ha, hb := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	client, server := ha.open(Config{}), hb.open(Config{})
	for what, end := range map[string]func(*Conn) error{"close": (*Conn).Close, "abort": (*Conn).Abort} {
		out, in := pairOn(t, ctx, client, server, what)
		r, err := server.Register(4096)
		must(t, err)
		must(t, second(r.Export(in, "m", RemoteWrite, 0, 4096)))
		to, err := out.Import(ctx, "m")
		must(t, err)
		for range ipc.NotifyCredit + 1 {
			op, err := out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: to, Flags: Notify})
			must(t, err)
			must(t, op.Wait(ctx))
		}
		must(t, out.Close())
		if _, err := in.Import(ctx, "never"); !errors.Is(err, ErrPeerClosed) {
			t.Errorf("%s: import: %v", what, err)
		}
		must(t, end(in))
		if snap, err := hb.d.Snapshot(); err != nil || len(snap.Conns) > 0 {
			t.Errorf("%s: %d connections are left, %v", what, len(snap.Conns), err)
		}
	}
}
