package linktest

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/mdlayher/ethernet"

	"multiedge/linkdrv"
)

// Sending through a faulty link:
//
//  1. each frame, in order, is given its fate; frames to deliver gather in out, by reference or, if they must change or
//     wait, as copies of our own;
//  2. frames held back follow once enough later ones have passed;
//  3. out goes to the driver below. What it has no room for stays, as copies, and goes first next time: a frame that
//     was judged has been taken from the caller and is never judged again.

// Counters say what a faulty link did to the frames sent through it.
type Counters struct {
	Frames     uint64 // judged: the sum of the next six
	Passed     uint64 // delivered as they were
	Lost       uint64
	Duplicated uint64 // each delivered twice
	Corrupted  uint64
	Reordered  uint64 // delivered late
	Blackholed uint64 // lost because Blackhole said so, when sent

	Swallowed   uint64 // lost because Blackhole said so, when received
	Exempt      uint64 // not judged because of Faults.Only
	Undelivered uint64 // judged, but refused by the driver below
}

// Faulty is a driver that mistreats what is sent through it; receiving is untouched, except by Blackhole. For faults in
// both directions, wrap both ends. Like every Driver it serves one goroutine that receives and one that sends, which
// also calls Flush; Set, Blackhole and Counters are for any.
type Faulty struct {
	linkdrv.Driver // the driver below

	counters         [10]atomic.Uint64
	wanted           atomic.Pointer[judge]
	blackTx, blackRx atomic.Bool

	judge *judge
	index uint64            // frames judged
	out   []linkdrv.TxFrame // to be sent
	own   [][]byte          // own[i] is the copy that out[i] refers to, nil if it refers to the caller's buffers
	held  []late            // in order of due
	free  [][]byte
}

// late is a frame held back until frame number due has passed.
type late struct {
	due   uint64
	frame []byte
}

const (
	nFrames = iota
	nPassed
	nLost
	nDuplicated
	nCorrupted
	nReordered
	nBlackholed
	nSwallowed
	nExempt
	nUndelivered
)

// Fault wraps a driver. It fails if a probability is not one. Closing the result closes the driver.
func Fault(d linkdrv.Driver, f Faults) (*Faulty, error) {
	w := &Faulty{Driver: d}
	if err := w.Set(f); err != nil {
		return nil, err
	}
	return w, nil
}

// Set replaces the faults from the next Send on, starting the new seed's sequence. The counters go on.
func (w *Faulty) Set(f Faults) error {
	if err := f.check(); err != nil {
		return err
	}
	w.wanted.Store(newJudge(f))
	return nil
}

// Blackhole silently discards everything sent (tx) or received (rx), or stops to.
func (w *Faulty) Blackhole(tx, rx bool) {
	w.blackTx.Store(tx)
	w.blackRx.Store(rx)
}

// Counters returns what happened so far.
func (w *Faulty) Counters() Counters {
	c := func(i int) uint64 { return w.counters[i].Load() }
	return Counters{Frames: c(nFrames), Passed: c(nPassed), Lost: c(nLost), Duplicated: c(nDuplicated),
		Corrupted: c(nCorrupted),
		Reordered: c(nReordered), Blackholed: c(nBlackholed), Swallowed: c(nSwallowed), Exempt: c(nExempt),
		Undelivered: c(nUndelivered)}
}

// Send implements linkdrv.Driver. A frame the driver below would refuse goes straight to it.
func (w *Faulty) Send(frames []linkdrv.TxFrame) (n int, err error) {
	w.judge = w.wanted.Load()
	limit := w.Info().MTU + linkdrv.HeaderLen
	for {
		if err = w.flush(); err != nil || len(w.out) > 0 || n == len(frames) {
			return n, err
		}
		for n < len(frames) && len(w.out) < linkdrv.SendBatch && sendable(&frames[n], limit) {
			w.treat(&frames[n])
			n++
		}
		if len(w.out) == 0 && n < len(frames) && !sendable(&frames[n], limit) {
			k, err := w.Driver.Send(frames[n : n+1])
			return n + k, err
		}
	}
}

func sendable(f *linkdrv.TxFrame, limit int) bool {
	return len(f.Head) >= linkdrv.HeaderLen && f.Len() <= limit
}

// Recv implements linkdrv.Driver.
func (w *Faulty) Recv(dst [][]byte) (int, error) {
	n, err := w.Driver.Recv(dst)
	if n > 0 && w.blackRx.Load() {
		w.counters[nSwallowed].Add(uint64(n))
		return 0, err
	}
	return n, err
}

// Flush delivers the frames that are held back, without waiting for later ones to overtake them. Call it when a link
// falls idle.
func (w *Faulty) Flush() error {
	w.release(^uint64(0))
	return w.flush()
}

// treat gives one frame its fate.
func (w *Faulty) treat(f *linkdrv.TxFrame) {
	if only := w.judge.Only; only != 0 && ethernet.EtherType(binary.BigEndian.Uint16(f.Head[12:])) != only {
		w.counters[nExempt].Add(1)
		w.push(*f, nil)
		return
	}
	w.counters[nFrames].Add(1)
	w.index++
	if w.blackTx.Load() {
		w.counters[nBlackholed].Add(1)
		return
	}
	switch fate := w.judge.next(); {
	case fate == lose:
		w.counters[nLost].Add(1)
	case fate == corrupt && f.Len() > linkdrv.HeaderLen:
		w.counters[nCorrupted].Add(1)
		c := w.copyOf(f)
		w.judge.damage(c, linkdrv.HeaderLen)
		w.push(linkdrv.TxFrame{Head: c}, c)
	case fate == duplicate:
		w.counters[nDuplicated].Add(1)
		w.push(*f, nil)
		w.push(*f, nil)
	case fate == hold:
		w.counters[nReordered].Add(1)
		w.hold(late{w.index + uint64(w.judge.ReorderBy), w.copyOf(f)})
	default:
		w.counters[nPassed].Add(1)
		w.push(*f, nil)
	}
	w.release(w.index)
}

// hold keeps the held frames in order of due; they arrive almost in that order.
func (w *Faulty) hold(l late) {
	w.held = append(w.held, l)
	for i := len(w.held) - 1; i > 0 && w.held[i-1].due > w.held[i].due; i-- {
		w.held[i-1], w.held[i] = w.held[i], w.held[i-1]
	}
}

// release moves the held frames that are due into out.
func (w *Faulty) release(index uint64) {
	k := 0
	for k < len(w.held) && w.held[k].due <= index {
		w.push(linkdrv.TxFrame{Head: w.held[k].frame}, w.held[k].frame)
		k++
	}
	if k > 0 {
		w.held = append(w.held[:0], w.held[k:]...)
	}
}

func (w *Faulty) push(f linkdrv.TxFrame, own []byte) {
	w.out = append(w.out, f)
	w.own = append(w.own, own)
}

// flush sends out; what finds no room stays there, owned by us.
func (w *Faulty) flush() error {
	sent := 0
	for sent < len(w.out) {
		k, err := w.Driver.Send(w.out[sent:])
		sent += k
		switch {
		case errors.Is(err, linkdrv.ErrTooLong) || errors.Is(err, linkdrv.ErrBadFrame):
			w.counters[nUndelivered].Add(1)
		case err != nil:
			w.counters[nUndelivered].Add(uint64(len(w.out) - sent))
			w.drop(len(w.out))
			return err
		case k == 0:
			w.drop(sent)
			for i := range w.out {
				w.keep(i)
			}
			return nil
		}
	}
	w.drop(sent)
	return nil
}

// drop forgets the first n frames of out.
func (w *Faulty) drop(n int) {
	for _, b := range w.own[:n] {
		if b != nil {
			w.free = append(w.free, b)
		}
	}
	w.out = append(w.out[:0], w.out[n:]...)
	w.own = append(w.own[:0], w.own[n:]...)
}

// keep makes out[i] independent of the caller's buffers.
func (w *Faulty) keep(i int) {
	if w.own[i] == nil {
		c := w.copyOf(&w.out[i])
		w.out[i], w.own[i] = linkdrv.TxFrame{Head: c}, c
	}
}

// copyOf returns the frame in one piece, in a buffer that drop takes back.
func (w *Faulty) copyOf(f *linkdrv.TxFrame) []byte {
	var b []byte
	if n := len(w.free); n > 0 {
		b, w.free = w.free[n-1][:0], w.free[:n-1]
	} else {
		b = make([]byte, 0, w.Info().MTU+linkdrv.HeaderLen)
	}
	return f.AppendTo(b)
}
