package daemon

import (
	"errors"
	"fmt"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"

	"golang.org/x/sys/unix"
)

// accept serves every client that connects.
func (d *Daemon) accept() error {
	for pause := time.Millisecond; ; {
		conn, err := d.listener.Accept()
		if err == nil {
			pause = time.Millisecond
			d.serve(conn)
			continue
		}
		select {
		case <-d.stopped:
			return nil
		default:
		}
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ECONNABORTED) &&
			!errors.Is(err, unix.ENOMEM) {
			return fmt.Errorf("control socket: %w", err)
		}
		d.log.Error("a client could not be accepted; raise LimitNOFILE if this lasts", "error", err)
		time.Sleep(pause)
		pause = min(2*pause, time.Second)
	}
}

// maxSessions bounds control sockets, clients or not, in proportion to the clients allowed.
func (d *Daemon) maxSessions() int { return 2*d.accounts.Admitted().Clients + config.MoreSessions }

// maxSessionsOfUser keeps one user from taking all of them.
func (d *Daemon) maxSessionsOfUser() int {
	l := d.accounts.Admitted()
	return l.ClientsPerUser + l.Clients/2 + 8
}

// sessionsOf counts the control sockets of an account. The caller holds d.mu.
func (d *Daemon) sessionsOf(owner uint32) (n int) {
	for ss := range d.sessions {
		if ss.owner == owner {
			n++
		}
	}
	return n
}

// keptSessions are control sockets that only administrators get, by default root and the daemon's user: whatever the
// others do, a peer can be removed.
const keptSessions = 16

// roomFor reports whether a session is admitted. The caller holds d.mu.
func (d *Daemon) roomFor(ss *session) bool {
	most := d.maxSessions()
	if d.admins.Has(ss.cred.UID) {
		own := 0
		for other := range d.sessions {
			if other.cred.UID == ss.cred.UID {
				own++
			}
		}
		if own < keptSessions { // whatever others hold, the administrator's own subordinate users too
			return true
		}
		most += keptSessions
	}
	return len(d.sessions) < most && d.sessionsOf(ss.owner) < d.maxSessionsOfUser()
}

// serve starts a session on a connected control socket, which becomes the daemon's.
func (d *Daemon) serve(conn *ipc.Conn) {
	cred, err := conn.Peer()
	if err != nil {
		d.log.Warn("client without credentials", "error", err)
		conn.Close()
		return
	}
	d.serveAs(conn, cred)
}

// serveAs is serve for a client that is known already.
func (d *Daemon) serveAs(conn *ipc.Conn, cred ipc.Cred) {
	ss := &session{d: d, conn: conn, cred: cred, owner: d.accounts.ownerOf(cred.UID), since: mono.Now(),
		out: shard.NewOutbox(d.accounts.Admitted().Conns), quit: make(chan struct{})}
	d.mu.Lock()
	if d.closing || !d.roomFor(ss) {
		d.mu.Unlock()
		conn.Close()
		return
	}
	d.sessions[ss] = struct{}{}
	d.tasks.Add(1)
	d.mu.Unlock()
	go func() {
		defer d.tasks.Done()
		ss.serve()
		d.mu.Lock()
		delete(d.sessions, ss)
		d.mu.Unlock()
	}()
}
