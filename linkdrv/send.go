package linkdrv

import "golang.org/x/sys/unix"

// Sending, per batch of up to 64 frames or 1 MiB:
//
//  1. gather points the prebuilt message headers at the caller's pieces: nothing is copied, nothing allocated;
//  2. one sendmmsg copies all of them into kernel buffers; on return the caller's buffers are its own again;
//  3. the kernel reports only how many it took. If that is fewer than offered, the next round offers the first one it refused,
//     alone at the front, and gets its errno: no room (stop), too long (skip that one), link down (stop).
//
// The headers keep references to the last batch's buffers until they are overwritten or the driver is dropped.

// maxCallBytes bounds how long one uninterruptible call lasts (see the package comment): 1 MiB is at most a quarter of a millisecond.
const maxCallBytes = 1 << 20

// pieces is the number of parts a frame is gathered from.
const pieces = 3

// sendQueue is the argument of sendmmsg: hdrs[i] points for ever at iovs[3i], only lengths and bases change.
type sendQueue struct {
	hdrs []unix.Mmsghdr
	iovs []unix.Iovec
}

func (q *sendQueue) init() {
	q.hdrs = make([]unix.Mmsghdr, SendBatch)
	q.iovs = make([]unix.Iovec, SendBatch*pieces)
	for i := range q.hdrs {
		q.hdrs[i].Hdr.Iov = &q.iovs[i*pieces]
	}
}

// gather fills the headers from the front of frames and returns how many; 0 only if the first frame has no Ethernet header.
func (q *sendQueue) gather(frames []TxFrame) int {
	bytes := 0
	for i := range frames {
		f := &frames[i]
		if i == SendBatch || bytes > maxCallBytes || len(f.Head) < HeaderLen {
			return i
		}
		iov := q.iovs[i*pieces : i*pieces+pieces : i*pieces+pieces]
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
		q.hdrs[i].Hdr.SetIovlen(k)
		bytes += f.Len()
	}
	return len(frames)
}

// Send implements Driver.
func (s *socket) Send(frames []TxFrame) (n int, err error) {
	if s.gone {
		return 0, s.errs.gone
	}
	retried := false
	for n < len(frames) {
		k := s.tx.gather(frames[n:])
		if k == 0 {
			s.stats.Refused++
			return n + 1, s.errs.bad
		}
		sent, errno := sendmmsg(s.fd, s.tx.hdrs[:k])
		s.stats.SendCalls++
		switch errno {
		case 0:
			n += sent
			s.stats.Sent += uint64(sent)
		case unix.EINTR:
		case unix.ENETDOWN:
			// The interface is down, or was: the socket remembers one report from back then. Clear that and ask once more.
			if retried {
				return n, s.judge(errno)
			}
			retried = true
			socketError(s.fd)
		case unix.EMSGSIZE:
			s.stats.Refused++
			return n + 1, s.errs.tooLong
		case unix.EINVAL:
			s.stats.Refused++
			return n + 1, s.errs.bad
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			s.stats.NoRoom++
			return n, nil
		default:
			return n, s.judge(errno)
		}
	}
	return n, nil
}
