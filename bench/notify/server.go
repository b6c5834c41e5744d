package notify

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"multiedge/edge"
)

const (
	service = "edgebench-notify-" // and how it waits
	bell    = "bell"              // the export that is written to
	stamps  = "stamps"            // and the one that has the times
	page    = "edgebench-page"    // a named export
	stamp   = 32                  // bytes: handler start and end, return
	most    = 4096                // bytes of a write
)

// Serve exports to whoever comes by the daemon at socket, until ctx ends. started is called when clients may come. The
// process is bound to one processor from now on.
func Serve(ctx context.Context, socket string, started func()) error {
	if err := onOneProcessor(); err != nil {
		return err
	}
	failed := make(chan error, len(Waits))
	for mode, name := range Waits {
		wait := []edge.WaitMode{edge.Block, edge.Adaptive, edge.Busy}[mode]
		d, err := edge.Open(ctx, edge.Config{Socket: socket, Wait: wait})
		if err != nil {
			return err
		}
		defer d.Close()
		l, err := d.Listen(ctx, service+name)
		if err != nil {
			return err
		}
		if mode == 0 {
			r, err := d.Register(most)
			if err != nil {
				return err
			}
			if _, err := d.Export(ctx, r, page, edge.RemoteWrite); err != nil {
				return err
			}
		}
		go func() { failed <- accept(ctx, d, l) }()
	}
	started()
	return <-failed
}

func accept(ctx context.Context, d *edge.Device, l *edge.Listener) error {
	for {
		c, err := l.Accept(ctx)
		if err == nil {
			err = answer(c, d)
		}
		if err != nil {
			return err
		}
	}
}

// interrupted is the thread that handlers interrupt, and what it tells of them.
type interrupted struct {
	clock clock
	at    atomic.Int64 // when a handler ended; 0: none has since
	round atomic.Int64 // its
	stop  atomic.Bool
	done  chan struct{}
}

// run reads the clock until stop, and stores when it first could after a handler.
func (i *interrupted) run(mem []byte) {
	defer close(i.done)
	runtime.LockOSThread() // and end with it: its priority stays what it is
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	for !i.stop.Load() {
		if i.at.Load() != 0 {
			now := i.clock.now()
			binary.LittleEndian.PutUint64(mem[stamp*i.round.Load()+16:], uint64(now))
			i.at.Store(0)
		}
	}
}

// answer handles the notifications of one connection until it ends, whose data says of how many rounds.
func answer(c *edge.Conn, d *edge.Device) error {
	rounds, err := strconv.Atoi(string(c.Data()))
	if err != nil || rounds < 1 || rounds > maxRounds {
		c.Abort()
		return fmt.Errorf("a client asks for %q rounds", c.Data())
	}
	r, err := d.Register(most + rounds*stamp)
	if err != nil {
		return err
	}
	mem := r.Bytes()[most:]
	clock, err := newClock()
	if err != nil {
		return err
	}
	thread := &interrupted{clock: clock, done: make(chan struct{})}
	go thread.run(mem)
	ring, err := r.Export(c, bell, edge.RemoteWrite, 0, most)
	if err != nil {
		return err
	}
	h, err := ring.Handle(func(n edge.Notification) {
		start := thread.clock.now()
		i := int(n.Imm)
		if i >= rounds {
			return
		}
		binary.LittleEndian.PutUint64(mem[stamp*i:], uint64(start))
		thread.round.Store(int64(i))
		end := thread.clock.now()
		binary.LittleEndian.PutUint64(mem[stamp*i+8:], uint64(end))
		thread.at.Store(end)
	})
	if err != nil {
		return err
	}
	if _, err := r.Export(c, stamps, edge.RemoteRead, most, rounds*stamp); err != nil {
		return err
	}
	<-h.Done()
	thread.stop.Store(true)
	<-thread.done
	c.Close() // it has ended: this forgets it
	return r.Close()
}

// onOneProcessor binds all threads of the process to the first processor that it may use, so that a handler always
// interrupts the same thread.
func onOneProcessor() error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	for cpu := 0; ; cpu++ {
		if may.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))) // the interrupted thread has one of them
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, &one)
		}
		if err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}
