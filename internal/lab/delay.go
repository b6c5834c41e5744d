package lab

import "multiedge/internal/mono"

// delayedBytes bounds what one wire holds back; frames beyond are counted as overflow.
const delayedBytes = 64 << 20

// held is a copied frame that waits for its time.
type held struct {
	due   mono.Time
	seq   uint64 // keeps frames of one time in order
	to    int    // host
	frame []byte
}

func (h *held) before(o *held) bool { return h.due < o.due || h.due == o.due && h.seq < o.seq }

// delayQueue is a heap of held frames, earliest first. It owns the frames' memory and uses it again.
type delayQueue struct {
	heap  []held
	seq   uint64
	bytes int
	free  [][]byte
	size  int // capacity in bytes of a frame's memory
}

// next is when the earliest frame is due.
func (q *delayQueue) next() mono.Time {
	if len(q.heap) == 0 {
		return mono.Never
	}
	return q.heap[0].due
}

// push copies a frame into the queue; false if the queue is full.
func (q *delayQueue) push(due mono.Time, to int, frame []byte) bool {
	if q.bytes+q.size > delayedBytes || len(frame) > q.size {
		return false
	}
	var b []byte
	if n := len(q.free); n > 0 {
		b, q.free = q.free[n-1], q.free[:n-1]
	} else {
		b = make([]byte, q.size)
	}
	b = b[:copy(b[:q.size], frame)]
	q.bytes += q.size
	q.seq++
	q.heap = append(q.heap, held{due, q.seq, to, b})
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.heap[i].before(&q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
	return true
}

// pop takes the earliest frame out. Its memory must be given back by release.
func (q *delayQueue) pop() held {
	first := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = held{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if q.heap[c].before(&q.heap[least]) {
				least = c
			}
		}
		if least == i {
			return first
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}

func (q *delayQueue) release(h held) {
	q.bytes -= q.size
	q.free = append(q.free, h.frame)
}
