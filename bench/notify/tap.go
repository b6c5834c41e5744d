package notify

import (
	"context"
	"encoding/json"
	"os"

	"multiedge/bench/kit"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/trace"
)

// frame is one that a daemon sent or received.
type frame struct {
	at  int64 // on CLOCK_MONOTONIC
	len int
}

// tap collects the frames of a daemon in one direction.
type tap struct {
	conn   *ipc.Conn
	pipe   *os.File
	frames []frame
	done   chan struct{}
}

// newTap traces the daemon at a socket.
func newTap(ctx context.Context, socket string, sent bool) *tap {
	conn := kit.Get(ipc.Dial(ctx, socket))
	var start trace.Start
	var fds []int
	if err := kit.Try(func() {
		var reply *ipc.Message
		reply, fds = ask(conn)
		kit.Check(json.Unmarshal(reply.Body, &start))
		if len(fds) != 1 || start.Monotonic == 0 {
			kit.Fail("the daemon is of another version")
		}
	}); err != nil {
		ipc.CloseFDs(fds)
		conn.Close()
		kit.Fail("tracing frames: %w", err)
	}
	t := &tap{conn: conn, pipe: os.NewFile(uintptr(fds[0]), "trace"), done: make(chan struct{})}
	ahead := start.Monotonic - int64(start.Now)
	go func() {
		defer close(t.done)
		in := trace.NewReader(t.pipe)
		var r trace.Record
		for in.Next(&r) == nil {
			if r.Sent == sent {
				t.frames = append(t.frames, frame{int64(r.Time) + ahead, r.Len})
			}
		}
	}()
	return t
}

func ask(conn *ipc.Conn) (*ipc.Message, []int) {
	kit.Check(conn.Send(&ipc.Message{ID: 1, Kind: ipc.KindTrace, Size: 64}))
	reply, fds, err := conn.RecvFDs()
	if err == nil && reply.Error != nil {
		err = reply.Error
	}
	kit.Check(err)
	return reply, fds
}

// close ends the trace and returns its frames, oldest first.
func (t *tap) close() []frame {
	t.conn.Close()
	<-t.done // the daemon closes the pipe
	t.pipe.Close()
	return t.frames
}

// within returns the frames from lo to hi, and moves on all of them to that place: lo never falls.
func within(all *[]frame, lo, hi int64) []frame {
	f := *all
	for len(f) > 0 && f[0].at < lo {
		f = f[1:]
	}
	*all = f
	n := 0
	for n < len(f) && f[n].at <= hi {
		n++
	}
	return f[:n]
}

// clock reads CLOCK_MONOTONIC, which is the same in all processes of a machine, without a system call.
type clock struct{ ahead int64 }

func newClock() (c clock, err error) {
	c.ahead, err = inspect.ClockAhead()
	return c, err
}

func (c clock) now() int64 { return int64(mono.Now()) + c.ahead }
