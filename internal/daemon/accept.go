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

// maxControls bounds control sockets, clients or not, in proportion to the clients allowed.
func (d *Daemon) maxControls() int { return 2*d.accounts.Admitted().Clients + config.MoreControls }

// maxControlsOfUser keeps one user from taking all of them.
func (d *Daemon) maxControlsOfUser() int {
	l := d.accounts.Admitted()
	return l.ClientsPerUser + l.Clients/2 + 8
}

// controlsOf counts the control sockets of an account. The caller holds d.mu.
func (d *Daemon) controlsOf(owner uint32) (n int) {
	for ss := range d.controls {
		if ss.owner == owner {
			n++
		}
	}
	return n
}

// keptControls are control sockets that only administrators get, by default root and the daemon's user: whatever the
// others do, a peer can be removed.
const keptControls = 16

// roomFor reports whether a control connection is admitted. The caller holds d.mu.
func (d *Daemon) roomFor(ss *controlConn) bool {
	most := d.maxControls()
	if d.rights.admins.Has(ss.cred.UID) {
		own := 0
		for other := range d.controls {
			if other.cred.UID == ss.cred.UID {
				own++
			}
		}
		if own < keptControls { // whatever others hold, the administrator's own subordinate users too
			return true
		}
		most += keptControls
	}
	return len(d.controls) < most && d.controlsOf(ss.owner) < d.maxControlsOfUser()
}

// serve starts a control connection on a connected control socket, which becomes the daemon's.
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
	ss := &controlConn{d: d, conn: conn, cred: cred, owner: d.accounts.ownerOf(cred.UID), since: mono.Now(),
		out: shard.NewOutbox(d.accounts.Admitted().Conns, conn.TrySend), quit: make(chan struct{})}
	d.mu.Lock()
	if d.closing || !d.roomFor(ss) {
		d.mu.Unlock()
		conn.Close()
		return
	}
	d.controls[ss] = struct{}{}
	d.tasks.Add(1)
	d.mu.Unlock()
	go func() {
		defer d.tasks.Done()
		ss.findOwner()
		ss.serve()
		d.mu.Lock()
		delete(d.controls, ss)
		d.mu.Unlock()
	}()
}
