package daemon

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// controlConn is one control socket: a goroutine that serves requests in order and one that writes what the shard says.
// It becomes a client by hello; without one it may only ask for status.
type controlConn struct {
	d        *Daemon
	conn     *ipc.Conn
	cred     ipc.Cred
	owner    uint32    // whose account it uses (owners.go)
	since    mono.Time // when it came
	program  string    // what the client calls itself; set before the shard knows it
	out      *shard.Outbox
	quit     chan struct{} // closed when the control connection ends
	once     sync.Once
	tracer   sync.WaitGroup // what goes on for a trace, a ping or who watches, and the closing of conn
	pinging  atomic.Bool
	watching atomic.Bool

	// Owned by the serving goroutine.
	version  uint32       // of the ABI, in force with this client
	features ipc.Features // likewise
	account  *account
	shard    *shard.Shard  // the client's
	client   *shard.Client // nil before hello
	shared   *shared       // with the client, kept here to unmap it when the shard uses it no more
	spaces   map[*regmem.Region]*space
	pins     *regmem.PinQueue  // of the spaces; nil: there was none yet
	carried  bool              // the client has a courier
	served   []<-chan struct{} // each closed when the shard has served a request that is its; in their order
	brought  int               // the descriptor that came with the request that is served; 0: none, or it was taken
}

// serve answers requests until the client or the daemon ends the control connection, and returns when everything the
// client held is released.
func (ss *controlConn) serve() {
	var writer sync.WaitGroup
	writer.Go(ss.write)
	for {
		m, bad := ss.receive()
		if m == nil {
			ss.report(bad)
			if bad == ipc.ErrJSON {
				ss.conn.RefuseJSON()
			}
			break
		}
		if !ss.pause(m.Kind) {
			break
		}
		ss.settle(handlers[m.Kind].control == nil)
		ss.out.Short(unreadAnswers)
		if reply := ss.answer(m, bad); reply != nil {
			if err := ss.conn.Send(reply); err != nil {
				ss.report(err)
				break
			}
		}
	}
	ss.conn.Received()
	ss.end() // before release: whoever waits for the client stops
	ss.release()
	ss.dropBrought()
	writer.Wait()
	ss.tracer.Wait()
}

// receive returns the next request, or the reason why there is none. Descriptors that it may not bring are closed: here
// and nowhere else, since that may take as long as the client likes.
func (ss *controlConn) receive() (*ipc.Message, error) {
	ss.dropBrought() // it was not wanted after all
	if ss.features&(ipc.FeatureMemory|ipc.FeatureHeap) == 0 {
		return ss.conn.Recv()
	}
	m, fds, err := ss.conn.RecvFDs()
	switch {
	case len(fds) == 1 && handlers[m.Kind].brings:
		ss.brought = fds[0]
	case len(fds) > 0:
		ipc.CloseFDs(fds)
		return nil, ipc.ErrDescriptors
	}
	return m, err
}

// mostAhead is how many requests of a client may wait for the shard at once: those that come together wake it once.
const mostAhead = 8

// settle waits until the shard has served the requests before, or, where the next one is the shard's too, so many of
// them that it may wait with them. Mostly it has, and the shard's thread has nobody to wake for that.
func (ss *controlConn) settle(shards bool) {
	for len(ss.served) > 0 {
		select {
		case <-ss.served[0]:
		default:
			if shards && len(ss.served) < mostAhead {
				return
			}
			<-ss.served[0]
		}
		ss.served = ss.served[:copy(ss.served, ss.served[1:])]
	}
}

func (ss *controlConn) dropBrought() {
	if ss.brought != 0 {
		unix.Close(ss.brought)
		ss.brought = 0
	}
}

// unreadAnswers is how many messages may wait to be sent to a client before its next request is served.
const unreadAnswers = 256

// answer serves one request, which bad says is malformed, and returns the reply, or nil if it was sent already or comes
// later. A fault of ours must not take down a daemon that many processes share: it ends this request only.
func (ss *controlConn) answer(m *ipc.Message, bad error) (reply *ipc.Message) {
	defer func() {
		if p := recover(); p != nil {
			ss.d.log.Error("request failed", "kind", m.Kind.String(), "panic", p, "stack", string(debug.Stack()))
			reply = m.Fail(ipc.Errorf(ipc.CodeInternal, "the daemon failed to serve this request; its log says more"))
		}
	}()
	_, known := ss.handler(m.Kind)
	switch {
	case m.ID == 0:
		return m.Fail(ipc.Errorf(ipc.CodeInvalid, "a request needs an id"))
	case m.Answer:
		return m.Fail(ipc.Errorf(ipc.CodeInvalid, "a client sends requests; this says that it is a reply"))
	case bad != nil && known:
		return m.Fail(bad)
	}
	reply, err := ss.request(m)
	if err != nil {
		return m.Fail(err)
	}
	return reply
}

// report logs why a control connection ends, unless it is the ordinary way: a client may leave before it has read all.
func (ss *controlConn) report(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		return
	}
	ss.log(slog.LevelWarn, "client disconnected", "reason", err)
}

// write sends what the shard has to say. When sending fails the control connection is over.
func (ss *controlConn) write() {
	var buf []*ipc.Message
	for {
		buf = ss.out.Take(buf[:0])
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

// end closes the socket, which makes the serving goroutine finish. Any goroutine may call it, the shard too: it does
// not wait for the socket, with which descriptors may go that the client sent and nobody received.
func (ss *controlConn) end() {
	ss.once.Do(func() {
		close(ss.quit)
		ss.out.Close()
		ss.tracer.Go(func() { ss.conn.Close() })
	})
}

// release gives back everything the client held, as soon as nothing is in flight on it.
func (ss *controlConn) release() {
	c := ss.client
	if c == nil {
		return
	}
	ss.shard.Detach(c)
	<-c.Gone()
	c.Regions(ss.freeRegion)
	ss.closePins()
	ss.endCourier()
	layout := ss.shared.rings.Layout()
	ss.conn.Count(nil)
	ss.shared.close()
	ss.account.uncharge(attachBytes(layout), 0)
	ss.d.accounts.leave(ss.owner)
	ss.d.unplace(ss.shard)
	ss.log(slog.LevelInfo, "client left")
	ss.d.tell(ss.event(EventLeft, ""))
}

// evicted ends a client that broke the rules; its own process learns it by the end of the control socket. The shard
// calls it.
func (ss *controlConn) evicted(why string) {
	ss.d.accounts.evicted(time.Now(), ss.owner)
	ss.log(slog.LevelWarn, "client evicted", "reason", why)
	ss.d.tell(ss.event(EventEvicted, why))
	ss.end()
}

// event is one about this client.
func (ss *controlConn) event(kind, text string) *Event {
	return &Event{Kind: kind, PID: ss.cred.PID, UID: ss.cred.UID, Program: ss.program, Text: text}
}

// freeMemory unpins and unmaps a region's bytes. It may take long: never call it on the shard.
func (ss *controlConn) freeMemory(m *regmem.Memory) {
	n := ss.d.shard.Exchange().Pins(m.Len())
	if err := m.Close(); err != nil {
		ss.d.log.Error("releasing memory", "bytes", n, "error", err)
	}
	ss.account.release(n)
}
