package ipc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Watcher is the waiting side of a Doorbell whose ringer does not trust the waiter. What the two share is an epoll
// descriptor that watches the doorbell, not the doorbell: the flags of an open file belong to all who hold it, so a
// waiter with the eventfd itself could make its ringer's write block. An epoll descriptor has no write, and the file
// behind the doorbell cannot be had from it.
//
// The waiter may have reasons of its own to wake up: it has a doorbell besides, which the same descriptor watches.
type Watcher struct {
	fd  int
	own *Doorbell
}

// Watch returns the descriptor by which another process waits for d: readable after a Ring and until Watcher.Clear. It
// is the caller's, to send and to close.
func (d *Doorbell) Watch() (fd int, err error) {
	fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("ipc: epoll_create1: %w", err)
	}
	if err := watch(fd, d); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// watch is edge-triggered: each Ring makes fd readable anew, and nobody has to read the counter.
func watch(fd int, d *Doorbell) error {
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, d.fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		return fmt.Errorf("ipc: epoll_ctl: %w", err)
	}
	return nil
}

// WatcherFromFD takes over a descriptor that Watch made. After an error it is still the caller's.
func WatcherFromFD(fd int) (*Watcher, error) {
	own, err := NewDoorbell()
	if err != nil {
		return nil, err
	}
	if err := watch(fd, own); err != nil {
		own.Close()
		return nil, err
	}
	return &Watcher{fd: fd, own: own}, nil
}

// FD returns the descriptor to poll: readable after a Ring of either side and until Clear.
func (w *Watcher) FD() int { return w.fd }

// Ring wakes the waiter from its own process.
func (w *Watcher) Ring() { w.own.Ring() }

// Wait blocks until a Ring, a signal, or for so many milliseconds, without limit for -1. FD is unreadable afterwards,
// as after Clear, by the same call.
func (w *Watcher) Wait(ms int) {
	var rung [2]unix.EpollEvent
	_, _ = unix.EpollWait(w.fd, rung[:], ms)
}

// Clear makes FD unreadable until the next Ring.
func (w *Watcher) Clear() {
	var rung [2]unix.EpollEvent
	for {
		if _, err := unix.EpollWait(w.fd, rung[:], 0); err != unix.EINTR {
			return
		}
	}
}

// Close closes the descriptors.
func (w *Watcher) Close() error {
	w.own.Close()
	return unix.Close(w.fd)
}
