package linkdrv

import "golang.org/x/sys/unix"

// Sending, per batch of up to 64 frames or 1 MiB:
//
//  1. gather points prebuilt message headers at the caller's pieces: nothing is copied, nothing allocated;
//  2. one sendmmsg copies all of them into kernel buffers; on return the caller's buffers are its own again;
//  3. the kernel reports only how many messages it took. If that is fewer than offered, the next round offers the first
//     one it refused, alone at the front, and gets its errno: no room (stop), too long (skip that one), link down
//     (stop). No room that lasts may be a frame that does not pass (refusals): it is skipped as well.
//
// The headers keep references to the last batch's buffers until they are overwritten or the driver is dropped.

// maxCallBytes bounds how long one uninterruptible call lasts (see the package comment): 1 MiB is at most a quarter of
// a millisecond.
const maxCallBytes = 1 << 20

// pieces is the number of parts a frame is gathered from.
const pieces = 3

// queue turns frames into the argument of sendmmsg.
type queue interface {
	// gather fills headers from the front of frames; fault is what the frame behind them would be refused for.
	gather(frames []TxFrame) (hdrs []unix.Mmsghdr, fault unix.Errno)
	// frames is how many frames the first so many headers hold.
	frames(hdrs int) int
}

// sendQueue sends each frame as a message: hdrs[i] points for ever at iovs[3i], only lengths and bases change.
type sendQueue struct {
	hdrs []unix.Mmsghdr
	iovs []unix.Iovec
}

func newSendQueue() *sendQueue {
	q := &sendQueue{hdrs: make([]unix.Mmsghdr, SendBatch), iovs: make([]unix.Iovec, SendBatch*pieces)}
	for i := range q.hdrs {
		q.hdrs[i].Hdr.Iov = &q.iovs[i*pieces]
	}
	return q
}

// gather implements queue.
func (q *sendQueue) gather(frames []TxFrame) (hdrs []unix.Mmsghdr, fault unix.Errno) {
	bytes := 0
	for i := range frames {
		f := &frames[i]
		if i == SendBatch || bytes > maxCallBytes {
			return q.hdrs[:i], 0
		}
		if len(f.Head) < HeaderLen {
			return q.hdrs[:i], unix.EINVAL
		}
		q.hdrs[i].Hdr.SetIovlen(point(q.iovs[i*pieces:], f))
		bytes += f.Len()
	}
	return q.hdrs[:len(frames)], 0
}

// frames implements queue.
func (q *sendQueue) frames(hdrs int) int { return hdrs }

// point points iov at the pieces of a frame and returns how many there are.
func point(iov []unix.Iovec, f *TxFrame) int {
	iov = iov[:pieces:pieces]
	iov[0].Base = &f.Head[0]
	iov[0].SetLen(len(f.Head))
	k := 1
	if len(f.Bulk) > 0 {
		iov[k].Base = &f.Bulk[0]
		iov[k].SetLen(len(f.Bulk))
		k++
	}
	if len(f.Tail) > 0 {
		iov[k].Base = &f.Tail[0]
		iov[k].SetLen(len(f.Tail))
		k++
	}
	return k
}

// Send implements Driver.
func (s *socket) Send(frames []TxFrame) (n int, err error) {
	if s.gone.Load() {
		return 0, s.errs.gone
	}
	if s.refused && isDown(s.fd, s.info.Index) {
		return 0, s.judge(unix.ENETDOWN)
	}
	s.refused = false
	retried, alone := false, false
	for n < len(frames) {
		upto := len(frames)
		if alone {
			upto = n + 1
		}
		hdrs, errno := s.tx.gather(frames[n:upto])
		sent := 0
		if len(hdrs) > 0 {
			sent, errno = sendmmsg(s.fd, hdrs)
			s.stats.SendCalls++
		}
		switch errno {
		case 0:
			taken := s.tx.frames(sent)
			if s.rejected.any() {
				s.rejected.passed(s.tx, frames[n:], sent)
			}
			n += taken
			s.stats.Sent += uint64(taken)
			if alone {
				// There is room, but the interface does not cut up UDP. The kernel does, but not of what bypasses the
				// queueing discipline.
				if err := s.setInt(unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 0, "PACKET_QDISC_BYPASS"); err != nil {
					return n, err
				}
				s.bypass, alone = false, false
			}
		case unix.EINTR:
		case unix.ENETDOWN:
			// The interface is down, and the socket keeps the report for Recv. Or it is up again, and what we got is
			// the report from back then: Recv owes it now, whatever a second try brings. (Should the interface come up
			// between the two calls here, Recv may have told of it, and tells twice.)
			if s.refused = isDown(s.fd, s.info.Index); !s.refused {
				s.untold.Store(true)
				if !retried {
					retried = true
					continue
				}
			}
			return n, s.judge(errno)
		case unix.EMSGSIZE:
			s.stats.Refused++
			return n + 1, s.errs.tooLong
		case unix.EINVAL:
			s.stats.Refused++
			return n + 1, s.errs.bad
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			if errno == unix.ENOBUFS && s.bypass && s.tx.frames(1) > 1 {
				alone = true // no room, no carrier, or nobody to cut this up: one frame tells
				continue
			}
			if errno == unix.ENOBUFS {
				switch s.rejected.judge(frames[n].Len()) {
				case lost:
					s.stats.Refused++
					return n + 1, s.errs.shut
				case doubtful:
					if shortestFirst(frames[n:]) {
						alone = false
						continue
					}
				}
			}
			s.stats.NoRoom++
			return n, nil
		default:
			return n, s.judge(errno)
		}
	}
	return n, nil
}
