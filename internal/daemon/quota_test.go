package daemon

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// fourInFlight has two clients of one user post more operations than the user may have in flight: nothing completes
// while the other daemon is held, so four of both together are all.
func fourInFlight(t *testing.T, a, b *Embedded, one, two *testClient, conn, other uint32) {
	t.Helper()
	until(t, "hold of a", deadline, func() bool { return a.d.shard.Hold() })
	for i := range 3 {
		one.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: conn, Token: uint64(i), Key: 1})
	}
	inFlight := func(n int) bool {
		snap, err := b.Daemon().Snapshot()
		return err == nil && snap.Clients[0].InFlight+snap.Clients[1].InFlight == n
	}
	until(t, "three in flight", deadline, func() bool { return inFlight(3) })
	for i := range 3 {
		two.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: other, Token: uint64(i), Key: 1})
	}
	for _, token := range []uint64{1, 2} {
		if e := two.completion(); e.Status != ipc.StatusQuota || e.Token != token {
			t.Fatalf("beyond the quota: %+v", e)
		}
	}
	a.d.shard.Release()
	two.completion()
	for range 3 {
		one.completion()
	}
	for i := range 4 { // all is given back
		two.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: other, Token: uint64(i), Key: 1})
	}
	for range 4 {
		if e := two.completion(); e.Status != ipc.StatusKey {
			t.Fatalf("within the quota: %+v", e)
		}
	}
}

// Two clients of one user share what the user may have: regions, pinned bytes, connections and operations in flight. A
// refusal names the limit, and what one of them gives back the other may take.
func TestQuotasOfAUser(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) {
		c.Limits = config.Limits{RegionsPerUser: 3, ConnsPerUser: 2, OpsPerUser: 4, Pinned: 1 << 20}
	})
	server := attach(t, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	one, two := attach(t, b, 64), attach(t, b, 64)

	first, _ := one.register(4096)
	one.register(4096)
	two.register(4096)
	for _, c := range []*testClient{one, two} {
		if e := c.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 1}, ipc.CodeLimit); !strings.Contains(e.Text,
			"limits.regions_per_user") {
			t.Errorf("the fourth region: %v", e)
		}
	}
	one.must(&ipc.Message{Kind: ipc.KindDeregister, Region: first})
	if e := two.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 2 << 20}, ipc.CodeLimit); !strings.Contains(e.Text,
		"limits.pinned") {
		t.Errorf("too many bytes: %v", e)
	}
	two.register(4096)

	_, conn := dialAccept(t, server, one, "a", "s")
	_, other := dialAccept(t, server, two, "a", "s")
	dial := &ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"}
	for _, c := range []*testClient{one, two} {
		if e := c.fails(dial, ipc.CodeLimit); !strings.Contains(e.Text, "limits.conns_per_user") {
			t.Errorf("the third connection: %v", e)
		}
	}
	two.must(&ipc.Message{Kind: ipc.KindListen, Service: "mine"})
	if _, err := server.call(&ipc.Message{Kind: ipc.KindDial, Peer: "b", Service: "mine"}); err == nil ||
		!strings.Contains(err.Error(), "limits.conns_per_user") {
		t.Errorf("the third connection, from the other side: %v", err)
	}
	one.must(&ipc.Message{Kind: ipc.KindAbort, Conn: conn})
	_, conn = dialAccept(t, server, one, "a", "s")

	fourInFlight(t, a, b, one, two, conn, other)
	two.close() // what a client had when it died is the user's again
	until(t, "the dead client is forgotten", deadline, func() bool {
		snap := snapshot(t, b.Daemon())
		return len(snap.Clients) == 1 && len(snap.Conns) == 1
	})
	dialAccept(t, server, one, "a", "s")
	until(t, "the dead client's memory is given back", deadline, func() bool {
		_, err := one.call(&ipc.Message{Kind: ipc.KindRegister, Size: 4096})
		return err == nil
	})
	one.register(4096)
}

// The pacer lets a second's worth through at once and spaces what exceeds it.
func TestPacer(t *testing.T) {
	var p pacer
	now := time.Unix(1000, 0)
	for i := range 100 {
		if d := p.wait(now, 100, 1); d != 0 {
			t.Fatalf("request %d of the first second waits %v", i, d)
		}
	}
	for i := range 5 {
		if d, want := p.wait(now, 100, 1), time.Duration(i+1)*10*time.Millisecond; d != want {
			t.Fatalf("request %d beyond it waits %v, want %v", i, d, want)
		}
	}
	if d := p.wait(now.Add(time.Minute), 100, 100); d != 0 {
		t.Fatalf("after a pause: %v", d)
	}
	if d := p.wait(now.Add(time.Minute), 100, 50); d != 500*time.Millisecond {
		t.Fatalf("a heavy request: %v", d)
	}
	a := newAccounts(config.Limits{Requests: 100})
	for uid := range uint32(10 * maxPacers) {
		a.pace(now.Add(time.Duration(uid)*100*time.Millisecond), uid, false, 1)
	}
	if n := len(a.pacing.of); n > maxPacers {
		t.Errorf("%d users are remembered", n)
	}
	const user = 1 << 20
	for range 1000 {
		a.pace(now, user, false, 1)
	}
	if d := a.pace(now, user, false, 1); d < 8*time.Second {
		t.Errorf("a user who sends requests without end waits %v", d)
	}
	if d := a.pace(now, user, true, weightHello); d != 0 {
		t.Errorf("it attaches after %v", d)
	}
	for range 5 {
		a.evicted(now, user)
	}
	if d := a.pace(now, user, true, weightHello); d < longestBan || d > 2*longestBan {
		t.Errorf("after evictions it attaches after %v", d)
	}
}

// A ban stays when greetings that waited before it, and put theirs off further than a ban may, are given up.
func TestBansCannotBeUndone(t *testing.T) {
	a := newAccounts(config.Limits{Requests: 1000})
	t.Cleanup(func() { regmem.Spare(0) })
	const user, waiting = 1001, 201
	now := time.Unix(1000, 0)
	greet := func() time.Duration { return a.pace(now, user, true, weightHello) }
	for range waiting {
		greet()
	}
	a.evicted(now, user)
	if d := greet(); d <= longestBan {
		t.Errorf("behind the others it waits %v", d)
	}
	for range waiting + 1 {
		a.giveBack(now, user, true, weightHello)
	}
	if d := greet(); d != longestBan {
		t.Errorf("after an eviction it attaches after %v", d)
	}
	if now = now.Add(longestBan); greet() != 0 {
		t.Error("after the ban it waits still")
	}
}

// Users who were quiet are looked for once a second, however many come.
func TestQuietUsersAreForgottenOnceASecond(t *testing.T) {
	a := newAccounts(config.Limits{Requests: 100})
	t.Cleanup(func() { regmem.Spare(0) })
	now := time.Unix(1000, 0)
	for uid := range uint32(2 * maxPacers) {
		a.pace(now, uid, false, 1)
	}
	a.pace(now.Add(sweepEvery-1), 1<<20, false, 1)
	if n := len(a.pacing.of); n != 2*maxPacers+1 {
		t.Errorf("%d users are remembered: they were looked through again", n)
	}
	a.pace(now.Add(sweepEvery), 1<<20+1, false, 1)
	if n := len(a.pacing.of); n != 2 {
		t.Errorf("%d users are remembered after a second", n)
	}
}
