package edge

import (
	"fmt"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// poller lets an event loop of the user's wait for a Device. Its descriptor joins the daemon's doorbell with one of our own, by which a
// leader tells of entries that it took from the ring meanwhile.
type poller struct {
	fd    int
	bell  *ipc.Doorbell
	armed bool
}

// PollFD returns a descriptor that polls readable, after Arm, when something completed or arrived. It belongs to the
// Device. The loop is: Poll, look at operations and notifications, Arm, and wait on the descriptor if Arm said true.
func (d *Device) PollFD() (int, error) {
	d.pollMu.Lock()
	defer d.pollMu.Unlock()
	if err := d.Err(); err != nil {
		return -1, err
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
	for _, fd := range []int{bell.FD(), d.bell.FD()} {
		if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			p.close()
			return -1, fmt.Errorf("edge: epoll_ctl: %w", err)
		}
	}
	d.poller = p
	return p.fd, nil
}

// Arm asks that the descriptor of PollFD become readable at the next progress. It reports false when there has been progress already:
// then Poll and look before waiting. Arm before PollFD reports false.
func (d *Device) Arm() bool {
	d.pollMu.Lock()
	defer d.pollMu.Unlock()
	p := d.poller
	if p == nil || d.dead.Load() != nil {
		return false
	}
	p.bell.Clear()
	p.armed = true
	d.pollerArmed.Store(true) // before what follows: a leader looks at it after it has made news and handed off
	if d.news.Load() != d.newsSeen.Load() {
		p.armed = false
		d.pollerArmed.Store(false)
		return false // another goroutine took what the caller has not looked at yet
	}
	if !d.lead.try() {
		return true
	}
	d.bell.Clear()
	d.rings.SetClientAsleep(true)
	ready := d.lead.cq.Ready()
	if ready {
		d.rings.SetClientAsleep(false)
		p.armed = false
		d.pollerArmed.Store(false)
	}
	d.lead.handOff()
	return !ready
}

func (p *poller) close() {
	unix.Close(p.fd)
	p.bell.Close()
}

// progress tells an armed poller to look again: entries were taken from the ring, a connection ended, or a leader that would have told
// leads no longer.
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
