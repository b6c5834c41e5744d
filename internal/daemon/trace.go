package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/internal/trace"
)

// Tracing: while somebody asks for it, every driver is wrapped in one that copies the beginning of each frame to a
// buffer, which a goroutine of the asking control connection writes to a pipe. Nobody waits: what finds no room is
// counted. A packet socket that bypasses the queueing discipline shows what it sends to nobody else on the host, so no
// other program can see this.

// tapPatience is how long a new trace waits for another one that may be about to end: its client may have gone without
// the daemon having noticed.
const tapPatience = time.Second

// tracing is what one control connection has recorded.
type tracing struct {
	*inspect.Tap
	pid  int32
	over chan struct{} // closed when another may trace
}

// trace starts to record and answers with a pipe that the records come out of, until the control connection ends or
// nobody reads.
func (ss *controlConn) trace(m *ipc.Message) (*ipc.Message, error) {
	if err := ss.mayAdminister("see everybody's frames"); err != nil {
		return nil, err
	}
	d := ss.d
	if m.What != "" {
		return ss.traceLookups(m)
	}
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
	cut := trace.MaxFrame
	if m.Size > 0 {
		cut = int(min(m.Size, trace.MaxFrame))
	}
	t := &tracing{Tap: inspect.NewTap(links, cut), pid: ss.cred.PID, over: make(chan struct{})}
	return ss.traceAlone(m, t, start, func(s *shard.Shard, now mono.Time) { s.SetWrap(now, t.Wrap) })
}

// lookups is what a request to trace memory that operations use asks for.
const lookups = "lookups"

// traceLookups records memory that operations use instead of frames.
func (ss *controlConn) traceLookups(m *ipc.Message) (*ipc.Message, error) {
	if m.What != lookups {
		return nil, ipc.Errorf(ipc.CodeInvalid, "there is no trace of %q; leave it out for frames, or ask for %s",
			m.What, lookups)
	}
	t := &tracing{Tap: inspect.NewTap(nil, trace.MaxFrame), pid: ss.cred.PID, over: make(chan struct{})}
	return ss.traceAlone(m, t, trace.Start{}, func(s *shard.Shard, now mono.Time) { s.SetLook(now, t.Look) })
}

// traceAlone starts a trace once there is no other.
func (ss *controlConn) traceAlone(m *ipc.Message, t *tracing, start trace.Start,
	tap func(*shard.Shard, mono.Time)) (*ipc.Message, error) {
	d := ss.d
	tooLong := time.After(tapPatience)
	for !d.tracing.CompareAndSwap(nil, t) {
		other := d.tracing.Load()
		if other == nil {
			continue
		}
		select {
		case <-other.over:
		case <-ss.quit:
			return nil, shard.ErrStopped
		case <-tooLong:
			return nil, ipc.Errorf(ipc.CodeBusy, "process %d traces already", other.pid)
		}
	}
	reply, err := ss.startTrace(m, t, start, tap)
	if err != nil {
		d.untap(t)
		return nil, err
	}
	return reply, nil
}

func (ss *controlConn) startTrace(m *ipc.Message, t *tracing, start trace.Start,
	tap func(*shard.Shard, mono.Time)) (*ipc.Message, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(fds[0])
	to := os.NewFile(uintptr(fds[1]), "trace")
	// as far as the system lets this user: tapRoom is what counts
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, 1<<20)
	reply := m.Reply()
	ahead, err := inspect.ClockAhead()
	if err != nil {
		to.Close()
		return nil, fmt.Errorf("clock: %w", err)
	}
	start.Now = mono.Now()
	start.Monotonic = int64(start.Now) + ahead
	if reply.Body, err = json.Marshal(start); err == nil {
		err = ss.d.everyShard(tap)
	}
	if err == nil {
		err = ss.conn.Send(reply, fds[0])
	}
	if err != nil {
		to.Close()
		return nil, err
	}
	ss.d.log.Info("frames or lookups are traced", "pid", ss.cred.PID, "uid", ss.cred.UID)
	ss.tracer.Go(func() { ss.writeTrace(t, to) })
	return nil, nil
}

// writeTrace moves records to the pipe. A write that waits for a reader ends when the control connection does.
func (ss *controlConn) writeTrace(t *tracing, to *os.File) {
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
		case <-t.News:
		}
		b := t.Take(spare)
		if _, err := to.Write(b); err != nil {
			return
		}
		spare = b
	}
}

// untap ends tracing.
func (d *Daemon) untap(t *tracing) {
	_ = d.everyShard(func(s *shard.Shard, now mono.Time) {
		s.SetWrap(now, nil)
		s.SetLook(now, nil)
	}) // a shard that has ended traces nothing
	d.tracing.Store(nil)
	close(t.over)
	d.log.Info("nothing is traced any more", "pid", t.pid)
}
