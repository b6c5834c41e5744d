package edge

import (
	"fmt"
	"net"
	"runtime"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// poller lets an event loop of the user's wait for a Device. Its descriptor joins the daemon's doorbell with one of our
// own, by which a leader tells of entries that it took from the ring meanwhile.
type poller struct {
	fd    int
	bell  *ipc.Doorbell
	armed bool
}

// PollFD returns a descriptor that polls readable, after Arm, when something completed or arrived. It belongs to the
// Device. The loop is: Poll, look at operations and notifications, Arm, and wait on the descriptor if Arm said true.
// From Device.Close on the descriptor is readable and Arm says false; it is closed when nothing refers to the Device
// any more. An embedded transport is run by its own thread from then on, not by the goroutines that wait.
func (d *Device) PollFD() (int, error) {
	d.pollMu.Lock()
	defer d.pollMu.Unlock()
	if d.life.Err() != nil {
		return -1, net.ErrClosed
	}
	if d.poller != nil {
		return d.poller.fd, nil
	}
	bell, err := ipc.NewDoorbell()
	if err != nil {
		return -1, err
	}
	p := &poller{bell: bell}
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		bell.Close()
		return -1, fmt.Errorf("edge: epoll_create1: %w", err)
	}
	err = p.watch(bell.FD())
	if a := d.at.Load(); err == nil && !a.wakeups.bellGone { // detach changes that under pollMu
		err = p.watch(a.wakeups.bell.FD())
	}
	if err != nil {
		p.close()
		return -1, err
	}
	d.poller = p
	d.looped.Store(true)
	// Not by Close: a loop that had yet to see it would sleep on, or wait for a stranger's descriptor. Nor by the Arm
	// that says false then: the loop may have the number in a set of its own and take it out later, when it is a
	// stranger's; and of two loops the other one may be about to wait.
	runtime.AddCleanup(d, (*poller).close, p)
	return p.fd, nil
}

func (p *poller) watch(fd int) error {
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN,
		Fd: int32(fd)}); err != nil {
		return fmt.Errorf("edge: epoll_ctl: %w", err)
	}
	return nil
}

// forget ends watch. A daemon that is only hung still has the file behind the doorbell, so closing ours would not.
func (p *poller) forget(bell *ipc.Watcher) {
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, bell.FD(), nil)
}

// Arm asks that the descriptor of PollFD become readable at the next progress. It reports false when there has been
// progress already: then Poll and look before waiting. Arm before PollFD reports false.
func (d *Device) Arm() bool {
	d.pollMu.Lock()
	defer d.pollMu.Unlock()
	p, a := d.poller, d.at.Load()
	if p == nil || a.life.dead.Load() != nil && (d.reopen == nil || d.life.Err() != nil) {
		return false
	}
	p.bell.Clear()
	p.armed = true
	d.pollerArmed.Store(true) // before what follows: a leader looks at it after it has made news and handed off
	if a.news.Load() != a.newsSeen.Load() {
		p.armed = false
		d.pollerArmed.Store(false)
		return false // another goroutine took what the caller has not looked at yet
	}
	if a.life.dead.Load() != nil || !a.lead.try() { // the next attachment tells, or the leader does
		a.hurry()
		return true
	}
	a.wakeups.bell.Clear()
	a.rings.SetClientAsleep(true)
	ready := a.lead.cq.Ready()
	if ready {
		a.rings.SetClientAsleep(false)
		p.armed = false
		d.pollerArmed.Store(false)
	}
	a.lead.handOff()
	return !ready
}

func (p *poller) close() {
	unix.Close(p.fd)
	p.bell.Close()
}

// disarm wakes the loop for good; the Device is closed.
func (d *Device) disarm() {
	d.pollMu.Lock()
	defer d.pollMu.Unlock()
	if d.poller != nil {
		d.poller.armed = false
		d.pollerArmed.Store(false)
		d.poller.bell.Ring()
	}
}

// progress tells an armed poller to look again: entries were taken from the ring, a connection ended, or a leader that
// would have told leads no longer.
func (d *Device) progress() {
	if !d.pollerArmed.Load() {
		return
	}
	d.pollMu.Lock()
	defer d.pollMu.Unlock()
	if d.poller != nil && d.poller.armed {
		d.poller.armed = false
		d.pollerArmed.Store(false)
		d.poller.bell.Ring()
	}
}
