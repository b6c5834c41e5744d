package edge

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// TestOnlyCloseIsEOF: whatever ends a connection but the peer's Close, no call says io.EOF, so that nobody takes what a
// crashed peer sent for all of it.
func TestOnlyCloseIsEOF(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(w *workplace, c *Conn)
		eof  bool
		is   error // nil: any
	}{
		{"close", func(_ *workplace, c *Conn) { c.Close() }, true, ErrPeerClosed},
		{"abort", func(_ *workplace, c *Conn) { c.Abort() }, false, ErrReset},
		{"the peer's device closes", func(w *workplace, _ *Conn) { w.client.Close() }, false, ErrReset},
		{"the peer's daemon stops", func(w *workplace, _ *Conn) { w.b.stop() }, false, nil},
		{"our daemon stops", func(w *workplace, _ *Conn) { w.a.stop() }, false, ErrDaemonDown},
	} {
		t.Run(end.name, func(t *testing.T) {
			ctx := testContext(t)
			w := newWorkplace(t)
			hiring := w.hire(t)
			c, err := w.client.Dial(ctx, "a", "work")
			must(t, err)
			mine, err := w.client.Register(4096)
			must(t, err)
			_, err = mine.Export(c, "theirs", RemoteRead|RemoteWrite, 0, 4096)
			must(t, err)
			at := <-hiring
			remote, err := at.conn.Import(ctx, "theirs")
			must(t, err)
			end.do(w, c)

			_, noteErr := at.conn.WaitNotify(ctx)
			eventually(t, "the end is known", 10*time.Second, func() bool { return at.conn.Err() != nil })
			_, readErr := remote.ReadAt(make([]byte, 8), 0)
			_, writeErr := remote.WriteAt(make([]byte, 8), 0)
			_, postErr := at.conn.Post(ctx, &Work{Kind: Read, Local: at.mem, Len: 8, Remote: remote})
			_, importErr := at.conn.Import(ctx, "nothing")
			for call, err := range map[string]error{"WaitNotify": noteErr, "ReadAt": readErr, "WriteAt": writeErr,
				"Post": postErr, "Import": importErr, "Err": at.conn.Err()} {
				switch {
				case err == nil:
					t.Errorf("%s says nothing", call)
				case errors.Is(err, io.EOF) != (end.eof && call != "ReadAt" && call != "WriteAt"):
					t.Errorf("%s says %v; io.EOF: %t", call, err, errors.Is(err, io.EOF))
				case end.is != nil && !errors.Is(err, end.is) && !(end.eof && errors.Is(err, ErrReset)):
					t.Errorf("%s says %v; want %v", call, err, end.is)
				}
			}
		})
	}
}

// TestNotificationSaysWhere: two exports of one connection, written to at places of their own, by writes of one frame
// and of many.
func TestNotificationSaysWhere(t *testing.T) {
	ctx := testContext(t)
	w := newWorkplace(t)
	hiring := w.hire(t)
	c, err := w.client.Dial(ctx, "a", "work")
	must(t, err)
	at := <-hiring
	second, err := at.mem.Export(at.conn, "second", RemoteWrite, 4096, childSize-4096)
	must(t, err)
	local, err := w.client.Register(childSize)
	must(t, err)
	for i, write := range []struct {
		name   string
		off, n int
	}{{"mem", 100, 8}, {"second", 24, 1}, {"second", 11, 50_000}, {"mem", 0, 40_000}, {"second", 5, 0}} {
		remote, err := c.Import(ctx, write.name)
		must(t, err)
		op, err := c.Post(ctx, &Work{Kind: Write, Local: local, Len: write.n, Remote: remote, RemoteOff: write.off,
			Flags: Notify, Imm: uint32(i)})
		must(t, err)
		n, err := at.conn.WaitNotify(ctx)
		must(t, err)
		if n.Imm != uint32(i) || n.Len != write.n || n.Offset != write.off || n.Grant == nil ||
			n.Grant.Name() != write.name || n.Grant.Region() != at.mem {
			t.Errorf("write %d to %s at %d: notification %+v", i, write.name, write.off, n)
		}
		must(t, op.Wait(ctx))
	}
	must(t, second.Revoke())
}

// TestMemoryOutlivesDaemon: a server that renews its memory before it exports it has all connections import it, with
// its bytes, before and after a restart of the daemon.
func TestMemoryOutlivesDaemon(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a, b := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	server, client := a.open(Config{}), b.open(Config{})
	l, err := server.Listen(ctx, "store")
	must(t, err)
	r, err := server.Register(1 << 16)
	must(t, err)
	var table atomic.Pointer[Region]
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			now, err := r.Renew(ctx) // r itself, unless the daemon was restarted
			if err != nil {
				continue // and it is about to be again
			}
			r = now
			table.Store(r)
			r.Export(c, "table", RemoteRead|RemoteWrite, 0, r.Len())
		}
	}()
	for round := range 3 {
		var c *Conn
		eventually(t, "the service is there", 15*time.Second, func() bool {
			c, err = client.Dial(ctx, "a", "store")
			return err == nil
		})
		remote, err := c.Import(ctx, "table")
		must(t, err)
		p := make([]byte, 1)
		_, err = remote.ReadAt(p, 7)
		must(t, err)
		if int(p[0]) != round {
			t.Fatalf("round %d found the bytes of round %d", round, p[0])
		}
		_, err = remote.WriteAt([]byte{byte(round + 1)}, 7)
		must(t, err)
		if now := table.Load(); now.Bytes()[7] != byte(round+1) {
			t.Fatalf("the owner sees %d", now.Bytes()[7])
		}
		a.stop()
		a.start()
	}
	if err := l.Close(); !errors.Is(err, ErrDaemonDown) { // it may not be attached again yet
		must(t, err)
	}
}
