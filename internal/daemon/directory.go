package daemon

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// Whether a number that no file lists is a user's, the name service knows (nsswitch.conf: LDAP, sssd, systemd). It is
// asked by getent, since the daemon is linked without libc. What others cause by that is bounded: one question at a
// time, each charged like weightLookup requests to the account that the numbers which nobody lists share; answers are
// kept; and a name service that is silent is left alone for a while, in which such numbers share that account.

// Bounds of what the name service is asked.
const (
	lookupTime = time.Second      // how long an answer may take
	silentTime = 10 * time.Second // how long a silent name service is not asked
	userTime   = time.Hour        // how long a user is remembered
	otherTime  = time.Minute      // how long a number is remembered that is no user's
	mostKnown  = 4096             // numbers that are remembered
)

// directory remembers what the name service said. The zero directory is ready.
type directory struct {
	ask    func(ctx context.Context, uid uint32) (user bool, err error) // nil: getent
	asking sync.Mutex                                                   // held while it is asked

	mu     sync.Mutex
	known  map[uint32]lookup
	silent mono.Time // until when it is not asked
}

// lookup is an answer.
type lookup struct {
	user  bool
	until mono.Time // it is remembered
}

// recall returns what is known of a number.
func (d *directory) recall(now mono.Time, uid uint32) (user, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.known[uid]
	if ok && now < l.until {
		return l.user, true
	}
	return false, now < d.silent
}

// look asks whether a number is a user's, and waits for the answer. Without one it is none.
func (d *directory) look(uid uint32) (user bool) {
	d.asking.Lock()
	defer d.asking.Unlock()
	if user, known := d.recall(mono.Now(), uid); known {
		return user
	}
	ask := d.ask
	if ask == nil {
		ask = getent
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	user, err := ask(ctx, uid)
	d.remember(mono.Now(), uid, user, err)
	return user && err == nil
}

func (d *directory) remember(now mono.Time, uid uint32, user bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.silent = now.Add(silentTime)
		return
	}
	if len(d.known) >= mostKnown {
		d.known = nil
	}
	if d.known == nil {
		d.known = map[uint32]lookup{}
	}
	keep := otherTime
	if user {
		keep = userTime
	}
	d.known[uid] = lookup{user, now.Add(keep)}
}

// getent asks the name service. The names that systemd makes up for numbers of containers (vu-*, nss-mymachines(8)) and
// of user namespaces (ns-*, systemd-nsresourced(8)) are no users'.
func getent(ctx context.Context, uid uint32) (user bool, err error) {
	cmd := exec.CommandContext(ctx, "getent", "passwd", fmt.Sprint(uid))
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.WaitDelay = lookupTime
	line, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 { // getent(1): not found
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the name service for user %d: %w", uid, err)
	}
	return isUser(string(line), uid), nil
}

// isUser reports whether a line of passwd(5) is of a user with that number.
func isUser(line string, uid uint32) bool {
	words := strings.Split(line, ":")
	return len(words) > 2 && words[2] == fmt.Sprint(uid) && !strings.HasPrefix(words[0], "vu-") &&
		!strings.HasPrefix(words[0], "ns-")
}

// findOwner has a control connection whose user no file lists use his own account, if the name service knows him. It
// was admitted as one of shard.Unlisted.
func (ss *controlConn) findOwner() {
	dir, uid := &ss.d.accounts.owners.directory, ss.cred.UID
	if ss.owner != uint32(shard.Unlisted) {
		return
	}
	user, known := dir.recall(mono.Now(), uid)
	if !known && ss.await(true, weightLookup) {
		user = dir.look(uid)
	}
	if user {
		ss.d.mu.Lock()
		ss.owner = uid
		ss.d.mu.Unlock()
	}
}
