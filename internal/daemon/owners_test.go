package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/shard"
	"multiedge/regmem"
)

// write replaces a file, which gets another inode.
func write(t testing.TB, dir, name, text string) {
	t.Helper()
	tmp := filepath.Join(dir, name+".new")
	must(t, os.WriteFile(tmp, []byte(text), 0o644))
	must(t, os.Rename(tmp, filepath.Join(dir, name)))
}

const (
	testPasswd = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n" +
		"svc:x:165000:9::/:/bin/false\nnobody:x:65534:9::/:/bin/false\nodd:x:-1:0\nshort:x\n"
	testSubuid = "# owners\nann:100000:65536\n1001:165536:65536\nroot:300000:1000\ngone:400000:1000\n" +
		"ann:500000:1000\nbob:500500:1000\nbad:1:2:3\nann:x:5\nann:7:0\n2002:600000:10\nann:4294967000:65536\n"
)

// Subordinate users have their owner's account, whether he is named by name or number; those of root and of strangers
// have one of their own for each range; those that no file lists have one together.
func TestSubordinateUsersShareAnAccount(t *testing.T) {
	o := owners{dir: listedUsers(t)}
	unlisted := uint32(shard.Unlisted)
	check := func(want map[uint32]uint32) {
		t.Helper()
		for uid, owner := range want {
			if got := o.of(uid); got != owner {
				t.Errorf("user %d has the account of %d, want %d", uid, got, owner)
			}
		}
	}
	check(map[uint32]uint32{
		0: 0, 1000: 1000, 1001: 1001, 65534: 65534, 4242: 4242, 99_999: 99_999, // their own, listed or not
		100_000: 1000, 165_535: 1000, // by name
		165_000:         165_000,         // a user in the midst of a range
		165_536:         1001,            // by number
		300_000:         300_000,         // of root: not root's own account
		300_999:         300_000,         //
		400_001:         400_000,         // of nobody known
		500_600:         1000,            // the first of two ranges
		501_200:         1001,            //
		600_003:         600_000,         // of a number that is no user's
		700_000:         unlisted,        // as a directory service grants
		600_100_000:     unlisted,        //
		600_100_001:     600_100_001,     // above SUB_UID_MAX
		4_294_967_294:   1000,            // the last there is
		2002:            2002,            //
		1<<32 - 2 - 300: 1<<32 - 2 - 300, // before the last range
	})
	write(t, o.dir, "login.defs", "# SUB_UID_MIN 1\nSUB_UID_MIN\t\t 700001\nSUB_UID_MAX 700002 # comment\nUID_MIN 5\n")
	check(map[uint32]uint32{700_000: 700_000, 700_001: unlisted, 700_002: unlisted, 700_003: 700_003, 100_000: 1000})
	write(t, o.dir, "subuid", "bob:100000:65536\n")
	check(map[uint32]uint32{100_000: 1001, 165_536: 165_536})
	must(t, os.Remove(filepath.Join(o.dir, "subuid")))
	check(map[uint32]uint32{100_000: 100_000, 1000: 1000})
}

// What a user's subordinate users hold counts against his limits, and takes nothing from the others'.
func TestSubordinateUsersShareLimits(t *testing.T) {
	a := newAccounts(config.Limits{Clients: 99, ClientsPerUser: 3, Pinned: 1 << 20, RegionsPerUser: 3,
		PinnedTotal: 3 << 20, RegionsTotal: 99, Requests: 100})
	t.Cleanup(func() { regmem.Spare(0) })
	a.owners.dir = listedUsers(t)
	enter := func(uid uint32) (*account, error) { return a.enter(a.ownerOf(uid)) }
	var last *account
	for _, uid := range []uint32{1000, 100_000, 165_535} {
		u, err := enter(uid)
		must(t, err)
		must(t, u.reserve(4096))
		last = u
	}
	if _, err := enter(123_456); err == nil || !strings.Contains(err.Error(), "user 1000") {
		t.Errorf("a client more of a subordinate user: %v", err)
	}
	if err := last.reserve(4096); err == nil {
		t.Error("a region more of a subordinate user")
	}
	if bytes, regions := a.Of(140_000); bytes != 3*4096 || regions != 3 {
		t.Errorf("status shows %d bytes in %d regions", bytes, regions)
	}
	other, err := enter(1001)
	must(t, err)
	must(t, other.reserve(1<<20))
	for i := range uint32(3) { // of a directory service
		_, err := enter(700_000 + i)
		must(t, err)
	}
	if _, err := enter(700_003); err == nil || !strings.Contains(err.Error(), "/etc/subuid does not list") {
		t.Errorf("a client more of users that nobody lists: %v", err)
	}
}

// Other users take all control sockets that they can get, with many numbers. Root, and the user that runs
// the daemon, still get one, and have the daemon read its peers again.
func TestSessionsKeptForRoot(t *testing.T) {
	_, b := nodesIn(t, config.Encrypted, 1, func(c *config.Config) {
		c.Limits.Clients, c.Limits.ClientsPerUser = 8, 8
	})
	b.d.accounts.owners.dir = listedUsers(t)
	admitted := func(uid uint32) bool {
		c := openAs(t, b, uid)
		_, _, err := c.exchange(&ipc.Message{Kind: ipc.KindVersion})
		return err == nil
	}
	of := map[uint32]int{}
	full := func(uid uint32) {
		for admitted(uid) {
			of[uid]++
		}
	}
	for uid := uint32(2000); of[uid-1] > 0 || uid == 2000; uid++ { // users, each as often as he may
		full(uid)
	}
	if of[2000] < 8 || of[2001] < 8 {
		t.Fatalf("control connections by user: %v", of)
	}
	root := openAs(t, b, 0)
	must(t, root.hello(64))
	root.must(&ipc.Message{Kind: ipc.KindReload})
	for admitted(0) {
		of[0]++
	}
	if of[0] < 8 || of[0] > keptControls {
		t.Errorf("root gets %d control connections more", of[0])
	}
}

// The control connections of a user's subordinate users are his.
func TestSubordinateUsersShareSessions(t *testing.T) {
	_, b := nodes(t, 1, func(c *config.Config) { c.Limits.Clients, c.Limits.ClientsPerUser = 8, 2 })
	b.d.accounts.owners.dir = listedUsers(t)
	n := 0
	for ; n < 1000; n++ {
		c := openAs(t, b, 100_000+uint32(n))
		if _, _, err := c.exchange(&ipc.Message{Kind: ipc.KindVersion}); err != nil {
			break
		}
	}
	if n != b.d.maxControlsOfUser() {
		t.Errorf("%d control connections of one user's subordinate users, want %d", n, b.d.maxControlsOfUser())
	}
	c := openAs(t, b, 1001)
	must(t, c.hello(64))
}

// The clients of a user cause few lines in the log, whatever their numbers. The next line says how many
// were left out; another user's are written.
func TestLinesInTheLogAreFew(t *testing.T) {
	a := newAccounts(config.Limits{Requests: 100})
	a.owners.dir = listedUsers(t)
	now := time.Unix(1000, 0)
	lines, leftOut := 0, 0
	for i := range 10_000 { // in ten seconds
		ok, left := a.mayLog(now.Add(time.Duration(i)*time.Millisecond), a.ownerOf(100_000+uint32(i)))
		if ok {
			lines, leftOut = lines+1, leftOut+left
		}
	}
	if lines > linesAtOnce+10 || lines < linesAtOnce {
		t.Errorf("%d lines in 10 s", lines)
	}
	if ok, _ := a.mayLog(now.Add(10*time.Second), 1001); !ok {
		t.Error("another user's line is left out")
	}
	if ok, left := a.mayLog(now.Add(time.Minute), 1000); !ok || lines+leftOut+left != 10_000 {
		t.Errorf("%d lines were written and %d left out, of 10,000", lines, leftOut+left)
	}
}

// A file that cannot be read changes nothing, and is read once it can be: descriptors may be short for a moment.
func TestAccountsWhileAFileCannotBeRead(t *testing.T) {
	dir := listedUsers(t)
	o := owners{dir: dir}
	const ann, ofAnn = 1000, 100_001
	if got := o.of(ofAnn); got != ann {
		t.Fatalf("user %d has the account of %d", ofAnn, got)
	}
	must(t, os.Remove(filepath.Join(dir, "subuid")))
	must(t, os.Mkdir(filepath.Join(dir, "subuid"), 0o755)) // opens, and cannot be read
	if got := o.of(ofAnn); got != ann {
		t.Errorf("user %d has the account of %d while subuid cannot be read", ofAnn, got)
	}
	must(t, os.Remove(filepath.Join(dir, "subuid")))
	write(t, dir, "subuid", "bob:100000:65536\n")
	if got := o.of(ofAnn); got != 1001 {
		t.Errorf("user %d has the account of %d, want bob's", ofAnn, got)
	}
}
