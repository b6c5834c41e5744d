package linktest

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"multiedge/linkdrv"
)

// queue is the receive side of an End: a ring of slots of which [tail, head) are lent to the receiver and [head, end)
// wait. All counters grow for ever; slot i is at i modulo len(slots).
type queue struct {
	mu              sync.Mutex
	slots           [][]byte // made when first used
	limit           int      // bytes of the longest frame
	tail, head, end uint64

	received, dropped uint64
	down, closed      bool
	event             int  // eventfd, -1 if none
	rung              bool // it is readable
}

// state is the error of this end's calls.
func (q *queue) state() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended()
}

// ended is why the end takes and gives no frames; nil: it does. The caller holds mu.
func (q *queue) ended() error {
	switch {
	case q.closed:
		return linkdrv.ErrClosed
	case q.down:
		return linkdrv.ErrLinkDown
	}
	return nil
}

// put copies a frame into the next slot, or counts it as dropped.
func (q *queue) put(f *linkdrv.TxFrame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended() != nil {
		return
	}
	if q.end-q.tail == uint64(len(q.slots)) || f.Len() > q.limit {
		q.dropped++
		return
	}
	slot := &q.slots[q.end%uint64(len(q.slots))]
	if *slot == nil {
		*slot = make([]byte, 0, q.limit)
	}
	*slot = f.AppendTo((*slot)[:0])
	q.end++
	q.received++
	q.signal()
}

// take lends frames to the receiver after taking back those lent before.
func (q *queue) take(dst [][]byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tail = q.head
	for ; n < len(dst) && q.head < q.end; n++ {
		s := q.slots[q.head%uint64(len(q.slots))]
		dst[n] = s[:len(s):len(s)]
		q.head++
	}
	if n > 0 || len(dst) == 0 {
		return n, nil
	}
	q.quiet()
	return 0, q.ended()
}

func (q *queue) descriptor() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.event < 0 && !q.closed {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return -1
		}
		q.event = fd
		if q.head < q.end || q.down {
			q.signal()
		}
	}
	return q.event
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// signal makes the descriptor readable.
func (q *queue) signal() {
	if q.event >= 0 && !q.rung {
		unix.Write(q.event, one)
		q.rung = true
	}
}

// quiet makes it unreadable: nothing waits.
func (q *queue) quiet() {
	if q.event >= 0 && q.rung {
		var b [8]byte
		unix.Read(q.event, b[:])
		q.rung = false
	}
}
