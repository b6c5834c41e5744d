package lab

import (
	"bytes"
	"errors"
	"time"

	"multiedge/internal/fault"
	"multiedge/linkdrv"
)

// A frame's way:
//
//  1. pump takes a batch from a port's receive ring: the bytes are the driver's until the next batch;
//  2. its stream draws its fate, route names the hosts it goes to, corruption happens in place;
//  3. undelayed, it is queued in the transmit batch of the port it goes to, still in the ring, and flushed with the
//     batch; delayed, it is copied into the heap and queued by release when due.

// maxAddresses bounds what a wire learns from spoofed source addresses.
const maxAddresses = 4096

// pump moves one batch from a host on; false if there was none.
func (w *wire) pump(from int, p *wirePort) bool {
	if p.quiet > w.now {
		return false
	}
	n, err := p.drv.Recv(w.rx[:])
	if err != nil && n == 0 {
		// down or deleted: look again later instead of spinning on its POLLERR
		p.quiet = w.now.Add(5 * time.Millisecond)
		return false
	}
	for _, frame := range w.rx[:n] {
		w.count.Received++
		w.carry(from, frame)
	}
	w.flush()
	return n > 0
}

// carry decides what becomes of one frame.
func (w *wire) carry(from int, frame []byte) {
	joined := linkdrv.InDatagram(frame)
	// Data: which frames set sessions up is the simulator's to know
	v := w.streams[from].Next(&w.faults, w.now, fault.Frame{Len: len(frame), Data: true, Joined: joined})
	if v.End == fault.Full {
		w.count.Overflow++
		return
	}
	if v.End != fault.Passes {
		w.count.Lost++
		return
	}
	w.count.Duplicated += uint64(v.N - 1)
	if v.Late {
		w.count.Reordered++
	}
	for _, c := range v.Copies[:v.N] {
		copied := frame
		if c.Bit > 0 {
			w.count.Corrupted++
			if c.Bit/8 < linkdrv.OuterLen+ethernetHeader && joined {
				w.count.Outer++
			}
			if v.N > 1 { // the others stay as they are
				copied = bytes.Clone(frame)
			}
			copied[c.Bit/8] ^= 1 << (c.Bit % 8)
		}
		w.route(from, copied, func(to int) { w.forward(to, copied, c.Wait) })
	}
}

// route calls deliver for each host a frame goes to: the other one of two, or, like a switch that learns, where its
// destination was seen.
func (w *wire) route(from int, frame []byte, deliver func(to int)) {
	if len(w.ports) == 2 {
		deliver(1 - from)
		return
	}
	if len(frame) < ethernetHeader {
		return
	}
	src, dst := [6]byte(frame[6:12]), [6]byte(frame[:6])
	if _, known := w.table[src]; known || len(w.table) < maxAddresses {
		w.table[src] = from
	}
	if to, ok := w.table[dst]; ok && dst[0]&1 == 0 {
		if to != from {
			deliver(to)
		}
		return
	}
	for to := range w.ports {
		if to != from {
			deliver(to)
		}
	}
}

// forward queues a frame for a host, now or later.
func (w *wire) forward(to int, frame []byte, delay time.Duration) {
	p := w.ports[to]
	switch {
	case p == nil:
		w.count.Overflow++
	case p.cut:
		w.count.Cut++
	case delay == 0:
		p.tx = append(p.tx, linkdrv.TxFrame{Head: frame})
	case !w.delayed.push(w.now.Add(delay), to, frame):
		w.count.Overflow++
	}
}

// release sends the delayed frames that are due; false if there was none.
func (w *wire) release() bool {
	var due [linkdrv.RecvBatch]held
	n := 0
	for ; n < len(due) && w.delayed.next() <= w.now; n++ {
		due[n] = w.delayed.pop()
		w.forward(due[n].to, due[n].frame, 0)
	}
	if n == 0 {
		return false
	}
	w.flush()
	for _, h := range due[:n] {
		w.delayed.release(h)
	}
	return true
}

// flush sends all transmit batches. A frame that a port has no room for is dropped, as a switch would.
func (w *wire) flush() {
	for _, p := range w.ports {
		if p == nil || len(p.tx) == 0 {
			continue
		}
		rest := p.tx
		for len(rest) > 0 {
			n, err := p.drv.Send(rest)
			sent := n
			switch {
			// n includes the one discarded
			case errors.Is(err, linkdrv.ErrTooLong) || errors.Is(err, linkdrv.ErrBadFrame):
				sent--
			case err != nil: // down or gone
				n = len(rest)
			case n < len(rest): // no room for this one
				n++
			}
			w.count.Delivered += uint64(sent)
			w.count.Overflow += uint64(n - sent)
			rest = rest[n:]
		}
		clear(p.tx)
		p.tx = p.tx[:0]
	}
}
