package daemon

import (
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// session is one control socket: a goroutine that serves requests in order and one that writes what the shard says. It becomes a client by
// hello; without one it may only ask for status.
type session struct {
	d       *Daemon
	conn    *ipc.Conn
	cred    ipc.Cred
	since   time.Time
	out     *outbox
	quit    chan struct{} // closed when the session ends
	once    sync.Once
	tracer  sync.WaitGroup // what goes on for a trace or a ping
	pinging atomic.Bool

	// Owned by the serving goroutine.
	account *account
	shard   *shard     // the client's
	client  *client    // nil before hello
	rings   *ipc.Rings // the client's, kept here to unmap them when the shard has let go
}

// serve answers requests until the client or the daemon ends the session, and returns when everything the client held is released.
func (ss *session) serve() {
	var writer sync.WaitGroup
	writer.Go(ss.write)
	for {
		m, err := ss.conn.Recv()
		if err != nil {
			ss.report(err)
			break
		}
		ss.pause(m)
		if reply := ss.answer(m); reply != nil {
			if err := ss.conn.Send(reply); err != nil {
				ss.report(err)
				break
			}
		}
	}
	ss.end() // before release: whoever waits for the client stops
	ss.release()
	writer.Wait()
	ss.tracer.Wait()
}

// answer serves one request and returns the reply, or nil if it was sent already or comes later. A fault of ours must not take
// down a daemon that many processes share: it ends this request only.
func (ss *session) answer(m *ipc.Message) (reply *ipc.Message) {
	defer func() {
		if p := recover(); p != nil {
			ss.d.log.Error("request failed", "kind", string(m.Kind), "panic", p, "stack", string(debug.Stack()))
			reply = m.Fail(ipc.Errorf(ipc.CodeInternal, "the daemon failed to serve this request; its log says more"))
		}
	}()
	if m.ID == 0 {
		return m.Fail(ipc.Errorf(ipc.CodeInvalid, "a request needs an id"))
	}
	reply, err := ss.request(m)
	if err != nil {
		return m.Fail(err)
	}
	return reply
}

// report logs why a session ends, unless it is the ordinary way.
func (ss *session) report(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	ss.d.log.Warn("client disconnected", "pid", ss.cred.PID, "uid", ss.cred.UID, "reason", err)
}

// write sends what the shard has to say. When sending fails the session is over.
func (ss *session) write() {
	var buf []*ipc.Message
	for {
		buf = ss.out.take(buf[:0])
		if buf == nil {
			return
		}
		for i, m := range buf {
			if err := ss.conn.Send(m); err != nil {
				ss.end()
				return
			}
			buf[i] = nil
		}
	}
}

// end closes the socket, which makes the serving goroutine finish. Any goroutine may call it, the shard too.
func (ss *session) end() {
	ss.once.Do(func() {
		close(ss.quit)
		ss.out.close()
		ss.conn.Close()
	})
}

// release gives back everything the client held, as soon as nothing is in flight on it.
func (ss *session) release() {
	c := ss.client
	if c == nil {
		return
	}
	ss.shard.box.do(func(now mono.Time) { ss.shard.detach(now, c) }) // a stopped shard has detached everybody
	<-c.gone
	c.regions.all(func(r *regmem.Region) { ss.freeMemory(r.Mem) })
	ss.rings.Close()
	c.submit.Close()
	c.ring.Close()
	ss.d.accounts.leave(ss.cred.UID)
	ss.d.unplace(ss.shard)
	ss.d.log.Info("client left", "pid", ss.cred.PID, "uid", ss.cred.UID)
}

// freeMemory unpins and unmaps a region's bytes. It may take long: never call it on the shard.
func (ss *session) freeMemory(m *regmem.Memory) {
	n := ss.d.shard.exchange.pins(m.Len())
	if err := m.Close(); err != nil {
		ss.d.log.Error("releasing memory", "bytes", n, "error", err)
	}
	ss.account.memory.Release(n)
}
