package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"multiedge/internal/ipc"
	"multiedge/internal/shard"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// defaultDepth is the queue depth of a client that does not ask for one.
const defaultDepth = 1024

// hello makes the control connection a client: rings and doorbells are made and sent, the shard begins to serve them.
func (ss *controlConn) hello(m *ipc.Message) (*ipc.Message, error) {
	if ss.client != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "hello was said already")
	}
	version, features, err := m.Agree(ss.d.features())
	if err != nil {
		return nil, err
	}
	depth := m.Depth
	if depth == 0 {
		depth = min(defaultDepth, ss.d.cfg.Limits.Queue)
	}
	layout, err := ipc.LayoutFor(depth)
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	if depth > ss.d.cfg.Limits.Queue {
		return nil, ipc.Errorf(ipc.CodeLimit, "queue depth %d is above limits.queue (%d); ask for less or raise it",
			depth, ss.d.cfg.Limits.Queue)
	}
	account, err := ss.d.accounts.enter(ss.owner)
	if err != nil {
		return nil, err
	}
	ss.account, ss.version, ss.features = account, version, features
	reply, err := ss.chargeAndAttach(m, layout)
	if err != nil {
		ss.d.accounts.leave(ss.owner)
		return nil, err
	}
	return reply, nil
}

// features is what this daemon has. An embedded one that exchanges pages makes its regions itself, and
// may have payloads of writes in other pages than their place when a redirection comes.
func (d *Daemon) features() ipc.Features {
	if d.shard.Exchange() != nil {
		return ipc.AllFeatures &^ (ipc.FeatureMemory | ipc.FeatureRedirect)
	}
	return ipc.AllFeatures
}

// programName is what the client calls itself, else what the kernel calls it. Neither proves anything: a process
// chooses both.
func programName(said string, pid int32) string {
	if said == "" {
		// hidden from a daemon of another user under ProtectProc=
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		said = strings.TrimSpace(string(b))
	}
	return strings.ToValidUTF8(said, "?")
}

func (ss *controlConn) chargeAndAttach(m *ipc.Message, layout ipc.Layout) (*ipc.Message, error) {
	n := attachBytes(layout)
	if err := ss.account.charge(n, 0); err != nil {
		return nil, err
	}
	reply, err := ss.attach(m, layout)
	if err != nil {
		ss.account.uncharge(n, 0)
	}
	return reply, err
}

// attachBytes is what a client costs before it registers anything: its queues, our side of them, and the control
// connection's buffers.
func attachBytes(l ipc.Layout) int { return l.Size() + l.Depth()*perOperation + perControl }

const (
	perOperation = 160      // a slot and its number in the list of the free ones, of an operation and of a buffer
	perControl   = 96 << 10 // the buffer of a message, the client, what waits to be sent
)

// shared is what the two sides share, and the descriptors by which the client gets it.
type shared struct {
	rings           *ipc.Rings
	submit, ring    *ipc.Doorbell
	ringsFD, ringFD int // -1: none; closed when they were sent
}

// share makes it. After an error nothing is left.
func share(layout ipc.Layout) (*shared, error) {
	filled, err := regmem.Reserve(layout.Size())
	if err != nil {
		return nil, ipc.Errorf(memoryCode(err), "%v", err)
	}
	defer filled()
	sh := &shared{ringsFD: -1, ringFD: -1}
	sh.rings, sh.ringsFD, err = ipc.CreateRings(layout)
	if err == nil {
		sh.submit, err = ipc.NewDoorbell()
	}
	if err == nil {
		sh.ring, err = ipc.NewDoorbell()
	}
	if err == nil {
		sh.ringFD, err = sh.ring.Watch() // not the doorbell itself: the shard must never wait for a client
	}
	if err != nil {
		sh.sent()
		sh.close()
		return nil, err
	}
	return sh, nil
}

func (sh *shared) sent() {
	for _, fd := range []int{sh.ringsFD, sh.ringFD} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (sh *shared) close() {
	if sh.rings != nil {
		sh.rings.Close()
	}
	for _, bell := range []*ipc.Doorbell{sh.submit, sh.ring} {
		if bell != nil {
			bell.Close()
		}
	}
}

// attach gives the client what the two share, and to a shard to serve.
func (ss *controlConn) attach(m *ipc.Message, layout ipc.Layout) (*ipc.Message, error) {
	ss.program = programName(m.Name, ss.cred.PID)
	s, err := ss.d.place(m.Shard)
	if err != nil {
		return nil, err
	}
	sh, err := share(layout)
	if err != nil {
		ss.d.unplace(s)
		return nil, err
	}
	defer sh.sent()
	sh.rings.Allow(ss.features)
	label := shard.Label{PID: ss.cred.PID, UID: ss.cred.UID, Program: ss.program, Since: ss.since}
	c := shard.NewClient(label, ss.account.held, ss.out, sh.rings, sh.submit, sh.ring, ss.evicted)
	c.Features = ss.features
	if err := s.Attach(c); err != nil {
		ss.d.unplace(s)
		sh.close()
		return nil, err
	}
	ss.shard, ss.client, ss.shared = s, c, sh
	ss.d.tell(ss.event(EventAttached, ""))
	reply := m.Reply()
	reply.Name = ss.d.cfg.Name
	reply.Greeting = ipc.Greeting{Version: ss.version, Features: ss.features, SQESize: ipc.SQESize,
		CQESize: ipc.CQESize, Node: ss.d.node.String(), Rings: layout, Window: s.Window(), Shard: s.Number() + 1}
	ss.log(slog.LevelInfo, "client attached", "depth", layout.Depth(), "shard", s.Number())
	if ss.features&(ipc.FeatureMemory|ipc.FeatureHeap) != 0 {
		ss.conn.TakeDescriptors()
	}
	ss.conn.Count(sh.rings)
	if err := ss.conn.Send(reply, sh.ringsFD, sh.submit.FD(), sh.ringFD); err != nil {
		ss.end() // release does the rest
	}
	return nil, nil
}
