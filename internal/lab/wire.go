package lab

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"

	"multiedge/internal/fault"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

const ethernetHeader = linkdrv.HeaderLen

// wire carries the frames of one link in user space. One locked thread owns everything here; others reach it through
// call.
type wire struct {
	ports   []*wirePort    // by host; nil while a host has no interface
	streams []fault.Stream // by sending host
	faults  Faults
	table   map[[6]byte]int // which host a MAC address was last seen at; used with more than two hosts
	delayed delayQueue
	count   Counters

	now   mono.Time
	rx    [linkdrv.RecvBatch][]byte
	poll  []unix.PollFd
	wake  int // eventfd
	calls chan func()
	stop  bool
	done  chan struct{}
}

// wirePort is the end of a link that belongs to the wire: the veth peer of one host's interface.
type wirePort struct {
	drv   linkdrv.Driver
	cut   bool              // nothing reaches this host
	tx    []linkdrv.TxFrame // the transmit batch
	quiet mono.Time         // not to be asked for frames before then
}

func newWire(seed uint64, link, hosts, mtu int, f Faults) (*wire, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &wire{
		ports: make([]*wirePort, hosts), faults: f, table: map[[6]byte]int{},
		delayed: delayQueue{size: mtu + ethernetHeader + 4},
		poll:    make([]unix.PollFd, 0, hosts+1), wake: fd, calls: make(chan func(), 1), done: make(chan struct{}),
	}
	for h := range hosts {
		w.streams = append(w.streams, fault.Keyed(seed, link, h))
	}
	go w.run()
	return w, nil
}

// call runs fn on the wire's thread between two batches and returns when it is done.
func (w *wire) call(fn func()) {
	done := make(chan struct{})
	w.calls <- func() { fn(); close(done) }
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-done
}

// attach gives the wire its end towards a host; nil takes it away. The wire closes it when it is replaced or the wire
// is closed.
func (w *wire) attach(host int, p *wirePort) (err error) {
	w.call(func() {
		if old := w.ports[host]; old != nil {
			w.count.Missed += old.missed()
			err = old.drv.Close()
		}
		w.ports[host] = p
	})
	return err
}

// close stops the wire and closes its ports.
func (w *wire) close() (err error) {
	w.call(func() { w.stop = true })
	<-w.done
	for _, p := range w.ports {
		if p != nil {
			err = errors.Join(err, p.drv.Close())
		}
	}
	return errors.Join(err, unix.Close(w.wake))
}

func (w *wire) run() {
	defer close(w.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // wake on time for delayed frames, not within 50 us
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	for !w.stop {
		select {
		case fn := <-w.calls:
			fn()
			continue
		default:
		}
		w.now = mono.Now()
		busy := w.release()
		for host, p := range w.ports {
			if p != nil && w.pump(host, p) {
				busy = true
			}
		}
		if !busy {
			w.park()
		}
	}
}

// park blocks until a port has frames, a delayed frame is due, or somebody calls.
func (w *wire) park() {
	w.poll = append(w.poll[:0], unix.PollFd{Fd: int32(w.wake), Events: unix.POLLIN})
	until := w.delayed.next()
	for _, p := range w.ports {
		switch {
		case p == nil:
		case p.quiet > w.now:
			until = mono.Min(until, p.quiet)
		default:
			w.poll = append(w.poll, unix.PollFd{Fd: int32(p.drv.FD()), Events: unix.POLLIN})
		}
	}
	var timeout *unix.Timespec
	if until != mono.Never {
		ts := unix.NsecToTimespec(max(0, int64(until.Sub(mono.Now()))))
		timeout = &ts
	}
	if n, err := unix.Ppoll(w.poll, timeout, nil); err == nil && n > 0 && w.poll[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(w.wake, b[:])
	}
}

// counters returns what was counted, including what the ports' rings had no room for.
func (w *wire) counters() (c Counters) {
	w.call(func() {
		c = w.count
		for _, p := range w.ports {
			if p != nil {
				c.Missed += p.missed()
			}
		}
	})
	return c
}

// missed is how many frames the port's ring had no room for.
func (p *wirePort) missed() uint64 {
	s, _ := p.drv.Stats() // an error leaves what was counted before
	return s.Dropped + s.Truncated
}
