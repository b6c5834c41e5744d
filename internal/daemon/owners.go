package daemon

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// Whose account a client uses. An ordinary user may run programs as any of his subordinate users (subuid(5)), of which
// he usually has 65,536. If each had an account of its own, quotas and fair shares would bound nobody. So:
//
//  1. a user that the password file lists has his own account;
//  2. a user in a range of /etc/subuid has the account of the range's owner. Ranges of root, and of owners that the
//     password file does not list, have an account each: the range's first user's. What runs as a subordinate user of
//     root must not use up root's account;
//  3. of other numbers between SUB_UID_MIN and SUB_UID_MAX of /etc/login.defs those that the name service knows have
//     their own account: users of a directory (directory.go). The others share the account shard.Unlisted: ranges that
//     a directory or a container manager grants are not in /etc/subuid;
//  4. all others have their own account: only root makes programs run as them.
//
// Rights are never decided by account: a service or a peer sees the user whom the kernel reports.

// Bounds of what is read.
const (
	mostOwnersBytes = 8 << 20 // of each file
	mostRanges      = 1 << 16
)

// Defaults of login.defs(5).
const (
	defaultSubMin = 100_000
	defaultSubMax = 600_100_000
)

// owners finds accounts. It reads its files again when they change. Its directory is set before it is asked.
type owners struct {
	dir       string // empty: /etc
	directory directory

	mu     sync.Mutex
	seen   [3]fileStamp // of ownerFiles
	read   bool
	users  map[uint32]bool // that the password file lists
	ranges []subRange      // in order of the file
	least  uint32          // subordinate users, listed or not
	most   uint32
	failed bool // while reading: what was read is not all
}

// ownerFiles are read in this order.
var ownerFiles = [...]string{"passwd", "subuid", "login.defs"}

// fileStamp changes when a file does. The zero stamp is of a file that is not there.
type fileStamp struct {
	dev, inode uint64
	size       int64
	mtime      syscall.Timespec
	ctime      syscall.Timespec
}

// subRange are subordinate users.
type subRange struct{ first, last, owner uint32 }

// of returns the account of a user, as far as is known. It does not wait for the name service.
func (o *owners) of(uid uint32) uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refresh()
	if o.users[uid] {
		return uid
	}
	for i := range o.ranges {
		if r := &o.ranges[i]; r.first <= uid && uid <= r.last {
			return r.owner
		}
	}
	if o.least <= uid && uid <= o.most {
		if user, _ := o.directory.recall(mono.Now(), uid); !user {
			return uint32(shard.Unlisted)
		}
	}
	return uid
}

// refresh reads the files if one has changed. What cannot be read is as if it were not there.
func (o *owners) refresh() {
	var now [len(ownerFiles)]fileStamp
	for i, name := range ownerFiles {
		now[i] = stampOf(o.path(name))
	}
	if o.read && now == o.seen {
		return
	}
	next := owners{dir: o.dir}
	next.readRanges(next.readUsers())
	next.readLimits()
	if next.failed && o.read {
		return // what was known holds until all can be read: descriptors may be short
	}
	o.users, o.ranges, o.least, o.most = next.users, next.ranges, next.least, next.most
	o.read, o.seen = !next.failed, now
}

func (o *owners) path(name string) string {
	if o.dir == "" {
		return "/etc/" + name
	}
	return o.dir + "/" + name
}

func stampOf(path string) (f fileStamp) {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) == nil {
		f = fileStamp{dev: st.Dev, inode: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
	}
	return f
}

// lines calls f for each line of a file that is no comment, split at a colon or, if there is none, at blanks.
func (o *owners) lines(name string, f func(words []string)) {
	file, err := os.Open(o.path(name))
	if err != nil {
		o.failed = o.failed || !errors.Is(err, fs.ErrNotExist)
		return
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostOwnersBytes))
	if err != nil {
		o.failed = true
		return
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ := strings.Cut(line, "#")
		if words := strings.Split(strings.TrimSpace(line), ":"); len(words) > 1 {
			f(words)
		} else if words = strings.Fields(line); len(words) > 1 {
			f(words)
		}
	}
}

// readUsers reads the password file and returns its users by name.
func (o *owners) readUsers() (byName map[string]uint32) {
	o.users, byName = map[uint32]bool{}, map[string]uint32{}
	o.lines("passwd", func(w []string) {
		if len(w) < 3 {
			return
		}
		if uid, ok := userNumber(w[2]); ok {
			o.users[uid], byName[w[0]] = true, uid
		}
	})
	return byName
}

// readRanges reads who owns which subordinate users: lines of owner, first and count, the owner by name or number.
func (o *owners) readRanges(byName map[string]uint32) {
	o.ranges = nil
	o.lines("subuid", func(w []string) {
		if len(w) != 3 || len(o.ranges) == mostRanges {
			return
		}
		first, ok := userNumber(w[1])
		count, err := strconv.ParseUint(w[2], 10, 32)
		if !ok || err != nil || count == 0 {
			return
		}
		r := subRange{first: first, last: uint32(min(uint64(first)+count-1, math.MaxUint32-1)), owner: first}
		owner, known := byName[w[0]]
		if !known {
			owner, known = userNumber(w[0])
			known = known && o.users[owner]
		}
		if known && owner != 0 {
			r.owner = owner
		}
		o.ranges = append(o.ranges, r)
	})
}

// readLimits reads which users are subordinate ones.
func (o *owners) readLimits() {
	o.least, o.most = defaultSubMin, defaultSubMax
	o.lines("login.defs", func(w []string) {
		uid, ok := userNumber(w[1])
		switch {
		case !ok:
		case w[0] == "SUB_UID_MIN":
			o.least = uid
		case w[0] == "SUB_UID_MAX":
			o.most = uid
		}
	})
}

// userNumber parses a user's number; the largest is none.
func userNumber(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n < math.MaxUint32
}

// ownerOf returns whose account a user has.
func (a *accounts) ownerOf(uid uint32) uint32 { return a.owners.of(uid) }
