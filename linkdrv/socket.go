package linkdrv

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// socket is what both drivers share: a bound packet socket, its send side, its counters and its fate.
//
// States: up; down (send errors, heals by itself when the interface comes up); gone (the kernel has detached the socket
// from a deleted interface; final); closed (fd is -1; final).
type socket struct {
	fd     int
	info   Info
	errs   linkErrors
	gone   bool
	down   bool // it was, and may be gone by now, of which nobody tells
	untold bool // Send met the report that Recv owes
	// refused: the last Send found the interface down. The next one looks first, and so knows what fails it: the interface, or a report of before.
	refused bool
	bypass  bool // of the queueing discipline
	stats   Stats
	tx      queue
}

func (s *socket) FD() int    { return s.fd }
func (s *socket) Info() Info { return s.info }

// Close closes the socket; a second Close does nothing.
func (s *socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("linkdrv: %s: close: %w", s.info.Name, err)
	}
	return nil
}

// Stats adds the kernel's counters, which reading resets, to the accumulated ones.
func (s *socket) Stats() (Stats, error) {
	if s.fd < 0 {
		return s.stats, s.errs.closed
	}
	k, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return s.stats, fmt.Errorf("linkdrv: %s: packet statistics: %w", s.info.Name, err)
	}
	s.stats.Received += uint64(k.Packets - k.Drops) // the kernel's tp_packets includes tp_drops
	s.stats.Dropped += uint64(k.Drops)
	return s.stats, nil
}

// judge turns the errno of a failed call into the driver's error, nil if the call may simply be repeated later.
//
// A deleted interface announces itself once with ENETDOWN, exactly like one that was set down; the difference
// is that the socket is no longer bound to its index. Sends on it then say ENXIO.
func (s *socket) judge(errno unix.Errno) error {
	switch errno {
	case 0, unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM:
		return nil
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		if s.gone = s.gone || boundIndex(s.fd) != s.info.Index; s.gone {
			return s.errs.gone
		}
		s.down = true
		return s.errs.down
	case unix.EBADF:
		return s.errs.closed
	default:
		return fmt.Errorf("linkdrv: %s: %w", s.info.Name, errno)
	}
}

// pending returns the error that waits on the socket, if any: how a receiver that makes no system call learns of the link's fate.
func (s *socket) pending() error {
	switch {
	case s.fd < 0:
		return s.errs.closed
	case s.gone:
		return s.errs.gone
	}
	if err := s.judge(socketError(s.fd)); err != nil {
		return err
	}
	return s.owed()
}

// owed returns what Recv has to tell although no error waits: that the interface went down, if Send was the one to hear of it, or that it was deleted
// after it had gone down.
func (s *socket) owed() error {
	switch {
	case s.untold:
		s.untold = false
		return s.judge(unix.ENETDOWN)
	case s.down && boundIndex(s.fd) != s.info.Index:
		s.gone = true
		return s.errs.gone
	}
	return nil
}
