package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// Numbers among the subordinate ones that the name service knows have an account each; the others share one, though
// they ask for it again and again. Each number is asked for once.
func TestDirectoryUsersHaveTheirOwnAccounts(t *testing.T) {
	_, b := nodes(t, 1, func(c *config.Config) { c.Limits.ClientsPerUser = 2 })
	o := &b.d.accounts.owners
	o.dir = listedUsers(t)
	var mu sync.Mutex
	asked := map[uint32]int{}
	o.directory.ask = func(_ context.Context, uid uint32) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[uid]++
		return uid < 710_000, nil
	}
	for uid := uint32(700_000); uid < 700_005; uid++ {
		for range 2 {
			must(t, openAs(t, b, uid).hello(64))
		}
		var e *ipc.Error
		if err := openAs(t, b, uid).hello(64); !errors.As(err, &e) || !strings.Contains(e.Text, "user 7000") {
			t.Errorf("the third client of user %d: %v", uid, err)
		}
	}
	attached := 0
	for uid := uint32(710_000); uid < 710_010; uid++ {
		if openAs(t, b, uid).hello(64) == nil {
			attached++
		}
	}
	if attached != 2 {
		t.Errorf("%d clients of numbers that nobody knows, want 2 of them all", attached)
	}
	must(t, openAs(t, b, 1001).hello(64))
	must(t, openAs(t, b, 100_000).hello(64))
	mu.Lock()
	defer mu.Unlock()
	for uid, n := range asked {
		if n != 1 || uid < 700_000 {
			t.Errorf("the name service was asked %d times for %d", n, uid)
		}
	}
	if len(asked) != 15 {
		t.Errorf("it was asked for %d numbers", len(asked))
	}
}

// What the name service said is remembered for a while, and a silent one is not asked. Who was a user remains one until
// it says otherwise.
func TestDirectoryIsAskedSeldom(t *testing.T) {
	asked := 0
	silent := errors.New("silent")
	d := newDirectory()
	d.ask = func(_ context.Context, uid uint32) (bool, error) {
		if asked++; uid == 9 {
			return true, silent
		}
		return uid < 5, nil
	}
	for range 2 {
		if !d.look(1) || d.look(7) {
			t.Error("user 1 is none, or number 7 is one")
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times for two numbers", asked)
	}
	if d.look(9) || d.look(2) || asked != 3 {
		t.Errorf("a silent name service was asked %d times", asked-2)
	}
	now := mono.Now()
	for _, c := range []struct {
		after       time.Duration
		uid         uint32
		user, known bool
	}{
		{0, 1, true, true}, {0, 2, false, true}, {silentTime, 2, false, false}, {silentTime, 7, false, true},
		{otherTime, 7, false, false}, {otherTime, 1, true, true}, {userTime, 1, true, false},
	} {
		if user, known := d.recall(now.Add(c.after), c.uid); user != c.user || known != c.known {
			t.Errorf("%d after %v: %v, %v", c.uid, c.after, user, known)
		}
	}
	d.remember(now, 1, false, nil)
	if user, known := d.recall(now.Add(silentTime), 1); user || !known {
		t.Error("who left the directory is a user still")
	}
}

// A bounded number of users is remembered, and of others; however many others are asked for, users are not forgotten.
func TestOtherNumbersDriveOutNoUsers(t *testing.T) {
	d, now := newDirectory(), mono.Now()
	const users = 100
	for uid := range uint32(users + 3*mostKnown) {
		d.remember(now, uid, uid < users, nil)
	}
	for uid := range uint32(users) {
		if user, known := d.recall(now, uid); !user || !known {
			t.Fatalf("user %d was forgotten", uid)
		}
	}
	for uid := range uint32(3 * mostKnown) {
		d.remember(now, uid, true, nil)
	}
	if len(d.users) != mostKnown || len(d.others) > mostKnown {
		t.Errorf("%d users and %d others are remembered", len(d.users), len(d.others))
	}
}

// A user of whom it is long that he was asked for is admitted though other numbers hold all the control sockets of the
// account that they share; he is asked for again. If he is none any more, his client uses that account.
func TestUsersAreAdmittedBeforeTheyAreAskedForAgain(t *testing.T) {
	_, b := nodes(t, 1, nil)
	o := &b.d.accounts.owners
	o.dir = listedUsers(t)
	const ann, left, container = 700_000, 700_001, 710_000
	asked := make(chan uint32, 8)
	o.directory.ask = func(_ context.Context, uid uint32) (bool, error) { asked <- uid; return uid == ann, nil }
	o.directory.users[ann], o.directory.users[left] = mono.Now(), mono.Now()
	o.directory.others[container] = mono.Now().Add(time.Hour)
	wasAsked := func(uid uint32) bool {
		select {
		case one := <-asked:
			return one == uid
		case <-time.After(deadline):
			return false
		}
	}
	there := func(c *testClient) bool {
		_, _, err := c.exchange(&ipc.Message{Kind: ipc.KindVersion})
		return err == nil
	}
	gone := openAs(t, b, left)
	if !there(gone) || !wasAsked(left) {
		t.Error("who was a user was not asked for")
	}
	if n := ownedBy(b.d, uint32(shard.Unlisted)); n != 1 {
		t.Errorf("%d clients use the shared account", n)
	}
	for there(openAs(t, b, container)) {
	}
	if !there(openAs(t, b, ann)) {
		t.Fatal("a user was not admitted")
	}
	if !wasAsked(ann) || ownedBy(b.d, ann) != 1 {
		t.Error("he was not asked for, or does not use his account")
	}
}

func ownedBy(d *Daemon, owner uint32) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.controlsOf(owner)
}

// Control connections that wait to ask the name service leave when their clients do, and when the daemon ends; they ask
// nothing then.
func TestWhoWaitsForTheNameServiceMayLeave(t *testing.T) {
	_, b := nodes(t, 1, nil)
	o := &b.d.accounts.owners
	o.dir = listedUsers(t)
	asked, answer := make(chan uint32, 8), make(chan struct{})
	defer close(answer)
	o.directory.ask = func(_ context.Context, uid uint32) (bool, error) { asked <- uid; <-answer; return false, nil }
	openAs(t, b, 700_000)
	<-asked
	waits, stays := openAs(t, b, 700_001), openAs(t, b, 700_002)
	waits.close()
	controls := func(n int) {
		t.Helper()
		until(t, "control connections leave", deadline, func() bool {
			b.d.mu.Lock()
			defer b.d.mu.Unlock()
			return len(b.d.controls) == n
		})
	}
	controls(2)
	b.d.mu.Lock()
	for ss := range b.d.controls {
		if ss.cred.UID == 700_002 {
			ss.end() // as the daemon does when it stops
		}
	}
	b.d.mu.Unlock()
	controls(1)
	stays.close()
	if len(asked) != 0 {
		t.Errorf("it was asked for %d", <-asked)
	}
}

// getent tells users from numbers that are none, and from names that systemd makes up.
func TestGetent(t *testing.T) {
	for line, want := range map[string]bool{
		"ann:x:700000:1::/home/ann:/bin/sh\n": true, "ann:x:700001:1::/:/bin/sh\n": false, "": false, "ann:x": false,
		"vu-box-5:x:700000:1::/:/bin/sh\n": false, "ns-box-5:x:700000:1::/:/bin/sh\n": false,
	} {
		if isUser(line, 700_000) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
	if _, err := os.Stat(getentPath); err != nil {
		t.Fatalf("%v: install the C library's programs (libc-bin)", err)
	}
	for uid, want := range map[uint32]bool{0: true, 4_000_000_001: false} {
		if user, err := getent(t.Context(), uid); user != want || err != nil {
			t.Errorf("user %d: %v, %v", uid, user, err)
		}
	}
}
