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
// time, each charged like weightLookup requests to the account that the numbers which nobody lists share, or to the
// user's if the number was one; answers are kept; and a name service that is silent is left alone for a while, in which
// numbers that were no user's share that account.

// Bounds of what the name service is asked.
const (
	lookupTime = time.Second      // how long an answer may take
	silentTime = 10 * time.Second // how long a silent name service is not asked
	userTime   = time.Hour        // how long a user is remembered
	otherTime  = time.Minute      // how long a number is remembered that is no user's
	mostKnown  = 4096             // users that are remembered, and as many other numbers
)

// directory remembers what the name service said. Make it with newDirectory.
type directory struct {
	ask  func(ctx context.Context, uid uint32) (user bool, err error)
	turn chan struct{} // holds an element while the name service is asked

	mu     sync.Mutex
	users  answers
	others answers   // numbers that are no user's; apart, since whoever has thousands of them may not drive out users
	silent mono.Time // until when it is not asked
}

func newDirectory() directory {
	return directory{ask: getent, turn: make(chan struct{}, 1), users: answers{}, others: answers{}}
}

// answers are numbers of which the name service said the same, each with the time until which that is believed.
type answers map[uint32]mono.Time

// put adds a number, in the place of any other if there are many.
func (a answers) put(uid uint32, until mono.Time) {
	if _, ok := a[uid]; !ok && len(a) >= mostKnown {
		for other := range a {
			delete(a, other)
			break
		}
	}
	a[uid] = until
}

// recall returns whether a number is a user's as far as is known, and whether there is nothing to ask. Who was a user
// is taken for one while he is asked for again: numbers that are no user's may have filled the account that they share.
func (d *directory) recall(now mono.Time, uid uint32) (user, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until, ok := d.users[uid]; ok {
		return true, now < max(until, d.silent)
	}
	return false, now < max(d.others[uid], d.silent)
}

// look asks whether a number is a user's, and waits for the answer. Without one it is what it was. The caller has the
// turn.
func (d *directory) look(uid uint32) (user bool) {
	user, known := d.recall(mono.Now(), uid)
	if known {
		return user // someone else has asked meanwhile
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	answer, err := d.ask(ctx, uid)
	d.remember(mono.Now(), uid, answer, err)
	if err != nil {
		return user
	}
	return answer
}

func (d *directory) remember(now mono.Time, uid uint32, user bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		d.silent = now.Add(silentTime)
	case user:
		delete(d.others, uid)
		d.users.put(uid, now.Add(userTime))
	default:
		delete(d.users, uid)
		d.others.put(uid, now.Add(otherTime))
	}
}

// getentPath is where glibc's program is. It is not looked for, so that PATH does not choose what root runs.
const getentPath = "/usr/bin/getent"

// getent asks the name service. The names that systemd makes up for numbers of containers (vu-*, nss-mymachines(8)) and
// of user namespaces (ns-*, systemd-nsresourced(8)) are no users'.
func getent(ctx context.Context, uid uint32) (user bool, err error) {
	cmd := exec.CommandContext(ctx, getentPath, "passwd", fmt.Sprint(uid))
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

// findOwner asks the name service whose account a control connection uses, if it may know and was not asked lately. Of
// a number that no file lists the connection was admitted as one of shard.Unlisted, or of the user that it was.
func (ss *controlConn) findOwner() {
	dir, uid := &ss.d.accounts.owners.directory, ss.cred.UID
	user, known := dir.recall(mono.Now(), uid)
	if ss.owner != uint32(shard.Unlisted) && (ss.owner != uid || !user) {
		return // a file lists it, or root alone makes programs run under it
	}
	if !known {
		if !ss.await(true, weightLookup) || !ss.awaitTurn(dir) {
			return
		}
		dir.look(uid)
		<-dir.turn
	}
	owner := ss.d.accounts.ownerOf(uid)
	ss.d.mu.Lock()
	ss.owner = owner
	ss.d.mu.Unlock()
}

// awaitTurn waits until nobody else asks the name service. It reports false when the client or the daemon ended
// meanwhile; nobody has the turn then.
func (ss *controlConn) awaitTurn(dir *directory) bool {
	tick := time.NewTicker(goneEvery)
	defer tick.Stop()
	for {
		select {
		case dir.turn <- struct{}{}:
			if ss.gone() {
				<-dir.turn
				return false
			}
			return true
		case <-ss.quit:
			return false
		case <-tick.C:
			if ss.gone() {
				return false
			}
		}
	}
}

// gone reports whether the control connection has ended, at either side.
func (ss *controlConn) gone() bool {
	select {
	case <-ss.quit:
		return true
	default:
		return ss.conn.Gone()
	}
}
