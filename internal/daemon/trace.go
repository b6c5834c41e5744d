package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/trace"
	"multiedge/linkdrv"
)

// Tracing: while somebody asks for it, every driver is wrapped in one that copies the beginning of each frame to a buffer, which a goroutine of the asking session writes to a
// pipe. Nobody waits: what finds no room is counted. A packet socket that bypasses the queueing discipline shows what it sends to nobody else on the host,
// so no other program can see this.

// tapRoom is how many bytes of records may wait for the pipe.
const tapRoom = 8 << 20

// tapPatience is how long who wants to trace waits for another that may be about to end: its client has gone, and we have not noticed yet.
const tapPatience = time.Second

// tap collects records. The shards add to it, its session empties it.
type tap struct {
	pid   int32
	links map[int]string // names of those traced, by number; one that comes later is not
	cut   int            // bytes kept of a frame
	news  chan struct{}
	over  chan struct{} // closed when another may trace

	mu    sync.Mutex
	waits []byte
	lost  uint32
}

// add records a frame that passed link.
func (t *tap) add(now mono.Time, link int, sent bool, pieces ...[]byte) {
	r := trace.Record{Time: now, Link: uint8(link), Sent: sent}
	for _, p := range pieces {
		r.Len += len(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waits)+min(r.Len, t.cut) > tapRoom {
		t.lost++
		return
	}
	r.Lost, t.lost = t.lost, 0
	t.waits = r.Begin(t.waits, t.cut, pieces...)
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// take returns what waits, and keeps spare to collect in.
func (t *tap) take(spare []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.waits
	t.waits = spare[:0]
	return b
}

// tapped is a driver whose frames are recorded.
type tapped struct {
	linkdrv.Driver
	tap  *tap
	link int
}

// Send implements linkdrv.Driver. A refused frame is not recorded.
func (t *tapped) Send(frames []linkdrv.TxFrame) (int, error) {
	n, err := t.Driver.Send(frames)
	taken := n
	if errors.Is(err, linkdrv.ErrTooLong) || errors.Is(err, linkdrv.ErrBadFrame) {
		taken--
	}
	now := mono.Now()
	for i := range frames[:taken] {
		f := &frames[i]
		t.tap.add(now, t.link, true, f.Head, f.Bulk, f.Tail)
	}
	return n, err
}

// Recv implements linkdrv.Driver.
func (t *tapped) Recv(dst [][]byte) (int, error) {
	n, err := t.Driver.Recv(dst)
	if n > 0 {
		now := mono.Now()
		for _, f := range dst[:n] {
			t.tap.add(now, t.link, false, f)
		}
	}
	return n, err
}

// tappedScatterer is the same of a driver that scatters.
type tappedScatterer struct {
	tapped
	scatter linkdrv.Scatterer
}

// RecvScatter implements linkdrv.Scatterer.
func (t *tappedScatterer) RecvScatter(dst []linkdrv.RxFrame, slots [][]byte) (int, error) {
	n, err := t.scatter.RecvScatter(dst, slots)
	if n > 0 {
		now := mono.Now()
		for i := range dst[:n] {
			f := &dst[i]
			t.tap.add(now, t.link, false, f.Head, f.Body, f.Rest)
		}
	}
	return n, err
}

// tapLink wraps the driver of a link, or unwraps it when nobody traces it.
func (s *shard) tapLink(l *link) {
	switch d := l.drv.(type) {
	case *tapped:
		l.drv = d.Driver
	case *tappedScatterer:
		l.drv = d.Driver
	}
	l.scatter, _ = l.drv.(linkdrv.Scatterer)
	if l.drv == nil || s.tap == nil || s.tap.links[l.index] != l.cfg.Name {
		return
	}
	t := tapped{Driver: l.drv, tap: s.tap, link: l.index}
	if l.scatter == nil {
		l.drv = &t
		return
	}
	both := &tappedScatterer{t, l.scatter}
	l.drv, l.scatter = both, both
}

// trace starts to record and answers with a pipe that the records come out of, until the session ends or nobody reads.
func (ss *session) trace(m *ipc.Message) (*ipc.Message, error) {
	if !ss.trusted() {
		return nil, ipc.Errorf(ipc.CodeDenied, "only root and the user that runs the daemon may see everybody's frames")
	}
	d := ss.d
	snap, err := d.Snapshot()
	if err != nil {
		return nil, err
	}
	start, links := trace.Start{}, map[int]string{}
	for i := range snap.Links {
		if l := &snap.Links[i]; m.Name == "" || m.Name == l.Name {
			start.Links = append(start.Links, trace.Link{Number: l.Number, Name: l.Name, MAC: l.MAC, MTU: l.MTU})
			links[l.Number] = l.Name
		}
	}
	if len(start.Links) == 0 {
		return nil, ipc.Errorf(ipc.CodeInvalid, "there is no link %q; edgectl link lists them", m.Name)
	}
	t := &tap{pid: ss.cred.PID, links: links, cut: trace.MaxFrame, news: make(chan struct{}, 1), over: make(chan struct{})}
	if m.Size > 0 {
		t.cut = int(min(m.Size, trace.MaxFrame))
	}
	tooLong := time.After(tapPatience)
	for !d.tracing.CompareAndSwap(nil, t) {
		other := d.tracing.Load()
		if other == nil {
			continue
		}
		select {
		case <-other.over:
		case <-ss.quit:
			return nil, errStopped
		case <-tooLong:
			return nil, ipc.Errorf(ipc.CodeBusy, "process %d traces already", other.pid)
		}
	}
	reply, err := ss.startTrace(m, t, start)
	if err != nil {
		d.untap(t)
		return nil, err
	}
	return reply, nil
}

func (ss *session) startTrace(m *ipc.Message, t *tap, start trace.Start) (*ipc.Message, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(fds[0])
	to := os.NewFile(uintptr(fds[1]), "trace")
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, 1<<20) // as far as the system lets this user: tapRoom is what counts
	reply := m.Reply()
	start.Now = mono.Now()
	var err error
	if reply.Body, err = json.Marshal(start); err == nil {
		err = ss.d.everyShard(func(s *shard, now mono.Time) { s.setTap(now, t) })
	}
	if err == nil {
		err = ss.conn.Send(reply, fds[0])
	}
	if err != nil {
		to.Close()
		return nil, err
	}
	ss.d.log.Info("frames are traced", "pid", ss.cred.PID, "uid", ss.cred.UID)
	ss.tracer.Go(func() { ss.writeTrace(t, to) })
	return nil, nil
}

// writeTrace moves records to the pipe. A write that waits for a reader ends when the session does.
func (ss *session) writeTrace(t *tap, to *os.File) {
	over := make(chan struct{})
	ss.tracer.Go(func() {
		select {
		case <-ss.quit:
		case <-over:
		}
		to.Close()
	})
	defer close(over)
	defer ss.d.untap(t)
	var spare []byte
	for {
		select {
		case <-ss.quit:
			return
		case <-t.news:
		}
		b := t.take(spare)
		if _, err := to.Write(b); err != nil {
			return
		}
		spare = b
	}
}

// untap ends tracing.
func (d *Daemon) untap(t *tap) {
	_ = d.everyShard(func(s *shard, now mono.Time) { s.setTap(now, nil) }) // a shard that has ended traces nothing
	d.tracing.Store(nil)
	close(t.over)
	d.log.Info("frames are traced no more", "pid", t.pid)
}

func (s *shard) setTap(now mono.Time, t *tap) {
	s.tap = t
	for _, l := range s.active {
		s.recall(now, l)
		s.tapLink(l)
	}
}
