package ipc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Doorbell is an eventfd by which one side wakes the other. It is non-blocking; wait with poll on FD.
type Doorbell struct{ fd int }

// NewDoorbell makes a doorbell.
func NewDoorbell() (*Doorbell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("ipc: eventfd: %w", err)
	}
	return &Doorbell{fd: fd}, nil
}

// DoorbellFromFD takes over a descriptor received from the other side. It is non-blocking already: the flag is the open
// file's.
func DoorbellFromFD(fd int) *Doorbell { return &Doorbell{fd: fd} }

// FD returns the descriptor: readable after a Ring and until Clear.
func (d *Doorbell) FD() int { return d.fd }

var one = [8]byte{1}

// Ring wakes the waiter. It never blocks: a full counter means the waiter has been told already. Zero allocations.
func (d *Doorbell) Ring() {
	for {
		_, err := unix.Write(d.fd, one[:])
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Clear makes FD unreadable until the next Ring.
func (d *Doorbell) Clear() {
	var b [8]byte
	for {
		_, err := unix.Read(d.fd, b[:])
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Close closes the descriptor.
func (d *Doorbell) Close() error { return unix.Close(d.fd) }
