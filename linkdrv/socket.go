package linkdrv

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// socket is what both drivers share: a bound packet socket, its send side, its counters and its fate.
//
// States: up; down (send errors, heals by itself when the interface comes up); gone (the kernel has detached the socket
// from a deleted interface; final); closed (fd is -1; final).
//
// The goroutine that receives and the one that sends share only what says the link's fate. It changes seldom, so the
// packet path just loads it. No lock is needed: the kernel gives each report to one of them, gone and down are never
// taken back, and only Recv clears untold.
type socket struct {
	fd     int // like info and errs constant from Open to Close
	info   Info
	errs   linkErrors
	gone   atomic.Bool
	down   atomic.Bool // it was, and may be gone by now, of which nobody tells
	untold atomic.Bool // Send met the report that Recv owes
	taken  recvCounts

	_ [cacheLine]byte // what each Send writes is not in the line that each Recv reads

	// For Send and Stats only.
	bypass bool // of the queueing discipline
	// the last Send found the interface down: the next one looks first, and so knows whether that fails it or a report
	// of before
	refused  bool
	rejected refusals // frames that the device does not take
	stats    Stats    // all but truncated
	tx       queue
}

// recvCounts is counted by Recv, and read by Stats on any thread.
type recvCounts struct{ truncated, calls atomic.Uint64 }

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
	err := s.count()
	all := s.stats
	all.Truncated, all.RecvCalls = s.taken.truncated.Load(), s.taken.calls.Load()
	return all, err
}

func (s *socket) count() error {
	if s.fd < 0 {
		return s.errs.closed
	}
	k, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("linkdrv: %s: packet statistics: %w", s.info.Name, err)
	}
	s.stats.Received += uint64(k.Packets - k.Drops) // the kernel's tp_packets includes tp_drops
	s.stats.Dropped += uint64(k.Drops)
	return nil
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
		if s.gone.Load() || boundIndex(s.fd) != s.info.Index {
			s.gone.Store(true)
			return s.errs.gone
		}
		s.down.Store(true)
		return s.errs.down
	case unix.EBADF:
		return s.errs.closed
	default:
		return fmt.Errorf("linkdrv: %s: %w", s.info.Name, errno)
	}
}

// pending returns the error that waits on the socket, if any: how a receiver that makes no system call learns of the
// link's fate.
func (s *socket) pending() error {
	switch {
	case s.fd < 0:
		return s.errs.closed
	case s.gone.Load():
		return s.errs.gone
	}
	s.taken.calls.Add(1)
	if err := s.judge(socketError(s.fd)); err != nil {
		return err
	}
	return s.owed()
}

// owed returns what Recv has to tell although no error waits: that the interface went down, if Send was the one to hear
// of it, or that it was deleted after it had gone down.
func (s *socket) owed() error {
	switch {
	case s.untold.Load():
		s.untold.Store(false) // if Send has met another report since, this tells of both
		return s.judge(unix.ENETDOWN)
	case s.down.Load() && boundIndex(s.fd) != s.info.Index:
		s.gone.Store(true)
		return s.errs.gone
	}
	return nil
}
