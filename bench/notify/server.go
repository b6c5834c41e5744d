package notify

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"

	"multiedge/bench/kit"
	"multiedge/bench/workload"
	"multiedge/edge"
	"multiedge/edge/events"
	"multiedge/edge/named"

	"golang.org/x/sys/unix"
)

const (
	service = "edgebench-notify-" // and how it waits
	bell    = "bell"              // the export that is written to
	stamps  = "stamps"            // and the one that has the times
	page    = "edgebench-page"    // a named export
	stamp   = 32                  // bytes: handler start and end, return; or what the process has spent
	tells   = 2                   // stamps behind those of the rounds, for what it has
	most    = 4096                // bytes of a write
)

// Serve exports to whoever comes by the daemon at socket, until ctx ends. started is called when clients may come. The
// process is bound to one processor from now on.
func Serve(ctx context.Context, socket string, started func()) {
	onOneProcessor()
	failed := make(chan error, len(Waits))
	for mode, name := range Waits {
		wait := []edge.WaitMode{edge.Block, edge.Adaptive, edge.Busy}[mode]
		d := kit.Get(edge.Open(ctx, edge.Config{Socket: socket, Wait: wait}))
		defer d.Close()
		l := kit.Get(d.Listen(ctx, service+name))
		if mode == 0 {
			r := kit.Get(d.Register(most))
			kit.Get(named.Export(ctx, d, r, page, edge.RemoteWrite))
		}
		go func() {
			failed <- kit.Try(func() {
				for {
					answer(kit.Get(l.Accept(ctx)), d)
				}
			})
		}()
	}
	started()
	kit.Check(<-failed)
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
func answer(c *edge.Conn, d *edge.Device) {
	rounds, err := strconv.Atoi(string(c.Data()))
	if err != nil || rounds < 1 || rounds > maxRounds {
		c.Abort()
		kit.Fail("a client asks for %q rounds", c.Data())
	}
	r := kit.Get(d.Register(most + (rounds+tells)*stamp))
	mem := r.Bytes()[most:]
	clock := kit.Get(newClock())
	thread := &interrupted{clock: clock, done: make(chan struct{})}
	go thread.run(mem)
	ring := kit.Get(r.Export(c, bell, edge.RemoteWrite, 0, most))
	h := kit.Get(events.Handle(ring, func(n edge.Notification) {
		start := thread.clock.now()
		i := int(n.Imm)
		if i >= rounds {
			if i < rounds+tells {
				kit.Get(binary.Encode(mem[stamp*i:], binary.LittleEndian, workload.ProcessEffort(d)))
			}
			return
		}
		binary.LittleEndian.PutUint64(mem[stamp*i:], uint64(start))
		thread.round.Store(int64(i))
		end := thread.clock.now()
		binary.LittleEndian.PutUint64(mem[stamp*i+8:], uint64(end))
		thread.at.Store(end)
	}))
	kit.Get(r.Export(c, stamps, edge.RemoteRead, most, (rounds+tells)*stamp))
	<-h.Done()
	thread.stop.Store(true)
	<-thread.done
	c.Close() // it has ended: this forgets it
	kit.Check(r.Close())
}

// onOneProcessor binds all threads of the process to the first processor that it may use, so that a handler always
// interrupts the same thread.
func onOneProcessor() {
	var may, one unix.CPUSet
	kit.Check(unix.SchedGetaffinity(0, &may))
	for cpu := 0; ; cpu++ {
		if may.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))) // the interrupted thread has one of them
	threads := kit.Get(os.ReadDir("/proc/self/task"))
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, &one)
		}
		if err != nil && err != unix.ESRCH {
			kit.Check(err)
		}
	}
}
