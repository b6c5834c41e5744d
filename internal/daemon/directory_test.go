package daemon

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
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

// What the name service said is remembered for a while, of a bounded number of users, and a silent one is not asked.
func TestDirectoryIsAskedSeldom(t *testing.T) {
	asked := 0
	silent := errors.New("silent")
	d := directory{ask: func(_ context.Context, uid uint32) (bool, error) {
		if asked++; uid == 9 {
			return true, silent
		}
		return uid < 5, nil
	}}
	if !d.look(1) || !d.look(1) || d.look(7) || d.look(7) || asked != 2 {
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
		{otherTime, 7, false, false}, {otherTime, 1, true, true}, {userTime, 1, false, false},
	} {
		if user, known := d.recall(now.Add(c.after), c.uid); user != c.user || known != c.known {
			t.Errorf("%d after %v: %v, %v", c.uid, c.after, user, known)
		}
	}
	for uid := range uint32(3 * mostKnown) {
		d.remember(now, uid, uid%2 == 0, nil)
		if len(d.known) > mostKnown {
			t.Fatalf("%d numbers are remembered", len(d.known))
		}
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
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("this system has no getent")
	}
	for uid, want := range map[uint32]bool{0: true, 4_000_000_001: false} {
		if user, err := getent(t.Context(), uid); user != want || err != nil {
			t.Errorf("user %d: %v, %v", uid, user, err)
		}
	}
}
