package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// Many who ask at once cost a few snapshots, each gets one that began after he asked, and no iteration of the shard
// copies more than a slice.
func TestSnapshotsAreShared(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	d := a.Daemon()
	var asked sync.WaitGroup
	hold, held := make(chan struct{}), make(chan struct{})
	go d.shard.Do(func(mono.Time) { close(held); <-hold })
	<-held
	const callers = 200
	var mu sync.Mutex
	made := map[*inspect.Snapshot]bool{}
	for range callers {
		asked.Go(func() {
			snap, err := d.Snapshot()
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			made[snap] = true
			mu.Unlock()
		})
	}
	until(t, "callers wait", deadline, func() bool { return shard.Inside{Shard: d.shard}.Jobs() == 1 })
	close(hold)
	asked.Wait()
	if len(made) > callers/10 {
		t.Errorf("%d callers at once cost %d snapshots", callers, len(made))
	}
	for range 3 { // what happened before the call is in it
		c := attach(t, a, 64)
		snap, err := d.Snapshot()
		if err != nil || len(snap.Clients) == 0 || snap.Clients[len(snap.Clients)-1].PID != int32(os.Getpid()) {
			t.Fatalf("%v %+v", err, snap)
		}
		n := len(snap.Clients)
		c.close()
		until(t, "client gone", deadline, func() bool { return len(snapshot(t, d).Clients) == n-1 })
	}
}

// Lists longer than a slice come whole, each entry once.
func TestSnapshotOfLongLists(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, b, 64), attach(t, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	for range inspect.SliceConns + 20 {
		dialAccept(t, server, client, "b", "s")
	}
	for range inspect.SliceRegions + 20 {
		client.register(4096)
	}
	snap := snapshot(t, a.Daemon())
	conns, regions := map[uint32]bool{}, map[uint32]bool{}
	for _, c := range snap.Conns {
		conns[c.ID] = c.PID == int32(os.Getpid()) && c.Program != ""
	}
	for _, r := range snap.Regions {
		regions[r.ID] = true
	}
	if len(conns) != inspect.SliceConns+20 || len(snap.Conns) != len(conns) ||
		len(regions) != inspect.SliceRegions+20 ||
		len(snap.Regions) != len(regions) {
		t.Errorf("%d connections in %d entries, %d regions in %d", len(conns), len(snap.Conns), len(regions),
			len(snap.Regions))
	}
	for id, ok := range conns {
		if !ok {
			t.Errorf("connection %d has no process or program", id)
		}
	}
}

// Readiness asks no shard: one that does not go round answers nobody.
func TestReadiness(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	d, c := a.Daemon(), attach(t, a, 64)
	must(t, d.Readiness())
	hold, held := make(chan struct{}), make(chan struct{})
	go d.shard.Do(func(mono.Time) { close(held); <-hold })
	<-held
	if err := d.Readiness(); err != nil {
		t.Error(err)
	}
	close(hold)
	c.must(&ipc.Message{Kind: ipc.KindDrain})
	if err := d.Readiness(); err == nil || err.Error() != "draining" {
		t.Errorf("draining: %v", err)
	}
	c.fails(&ipc.Message{Kind: ipc.KindListen, Service: "x"}, ipc.CodeDraining)
	c.must(&ipc.Message{Kind: ipc.KindDrain, What: DrainUndo})
	if err := d.Readiness(); err != nil {
		t.Errorf("drain undone: %v", err)
	}
	c.must(&ipc.Message{Kind: ipc.KindListen, Service: "x"})
	c.fails(&ipc.Message{Kind: ipc.KindDrain, What: "?"}, ipc.CodeInvalid)
}

// A reload may write the limits while a client is refused by them: under -race, the refusal reads nothing of the
// shard's.
func TestReloadWhileLimitsRefuse(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Regions = 1 })
	c := attach(t, a, 64)
	c.register(4096)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			if err := a.d.Reload(a.d.cfg); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 50 {
		c.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 4096}, ipc.CodeLimit)
	}
	<-done
}

// How a reload ended is seen until the next one.
func TestReloadIsSeen(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	d := a.Daemon()
	last := func() *inspect.ReloadStatus { return snapshot(t, d).Status.Reload }
	said := func(want string) bool {
		snap, _ := d.Snapshot()
		for _, f := range d.shown.inspector.Facts(snap) {
			if f.About == "configuration" && strings.Contains(f.Text, want) {
				return true
			}
		}
		return false
	}
	if r := last(); r != nil {
		t.Errorf("before a reload: %+v", r)
	}
	d.ReloadRefused(errors.New("nonsense in line 3"))
	if r := last(); r == nil || r.Result != inspect.ReloadFailed || !strings.Contains(r.Error, "line 3") ||
		!said("nonsense in line 3") {
		t.Errorf("a file that cannot be read: %+v", r)
	}
	cfg := d.cfg
	cfg.Spin++
	d.Reload(cfg)
	if r := last(); r.Result != inspect.ReloadPart || !said("spin") {
		t.Errorf("in part: %+v", r)
	}
	cfg = d.cfg
	cfg.Services = []config.Service{{Name: "x", User: "no-such-user"}}
	if d.Reload(cfg); last().Result != inspect.ReloadFailed {
		t.Errorf("an unknown user: %+v", last())
	}
	if err := d.Reload(d.cfg); err != nil || last().Result != inspect.ReloadOK || said("reload") {
		t.Errorf("%v %+v", err, last())
	}
}

// Who watches is told of what happens, and one who does not read keeps nobody waiting.
func TestWatch(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.KeepAlive, c.DeadTime = 50*time.Millisecond, 300*time.Millisecond })
	w := open(t, a)
	if _, _, err := w.exchange(&ipc.Message{Kind: ipc.KindWatch}); err != nil {
		t.Fatal(err)
	}
	go w.receive()
	t.Cleanup(func() {
		w.conn.Close()
		for range w.in {
		}
	})
	next := func(kind string) (ev Event) {
		w.message(kind, func(m *ipc.Message) bool {
			return m.Kind == ipc.KindEvent && json.Unmarshal(m.Body, &ev) == nil && ev.Kind == kind
		})
		return ev
	}
	server, client := attach(t, b, 64), attach(t, a, 64)
	if ev := next(EventAttached); ev.PID != int32(os.Getpid()) || ev.Program == "" || ev.Time.IsZero() {
		t.Errorf("%+v", ev)
	}
	connect(t, server, client, "b", "s")
	if ev := next(EventPeerUp); ev.Peer != "b" {
		t.Errorf("%+v", ev)
	}
	a.d.Reload(a.d.cfg)
	next(EventReload)
	client.close()
	next(EventLeft)
	b.Close()
	if ev := next(EventPeerDown); ev.Peer != "b" || ev.Text == "" {
		t.Errorf("%+v", ev)
	}
	idle, ok := a.d.news.join(0)
	if !ok {
		t.Fatal("no room")
	}
	for range newsRoom + 5 {
		a.d.tell(&Event{Kind: EventDrain})
	}
	<-idle.events
	a.d.tell(&Event{Kind: EventUndrain})
	var got Event
	for range newsRoom {
		got = <-idle.events
	}
	if got.Kind != EventUndrain || got.Missed != 5 {
		t.Errorf("after five that were missed: %+v", got)
	}
	a.d.news.leave(idle)
}

// A client that asks without reading the answers is not served until it reads them: what waits for it is bounded, and
// it is not evicted for it.
func TestUnreadAnswers(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Requests = 1 << 16 })
	c := open(t, a)
	_, fds, err := c.exchange(ipc.Hello(64))
	must(t, err)
	ipc.CloseFDs(fds)
	const most = 2 * shard.OutboxLimit
	asked := 0
	for ; asked < most; asked++ {
		within, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := c.conn.SendContext(within, &ipc.Message{ID: uint64(asked) + 2, Kind: ipc.KindUnlisten,
			Service: "x"})
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatalf("after %d questions: %v", asked, err)
		}
	}
	if asked == most {
		t.Errorf("%d questions were taken, and no answer read", asked)
	}
	for i := range asked {
		if m, err := c.conn.Recv(); err != nil || m.ID != uint64(i)+2 {
			t.Fatalf("answer %d of %d: %+v, %v", i, asked, m, err)
		}
	}
	t.Logf("%d questions were taken", asked)
}
