package sim

import (
	"container/heap"

	"multiedge/internal/engine"
	"multiedge/internal/fault"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Faults is what one direction of one segment does to frames.
type Faults = fault.Faults

// Tally counts what the network did to frames.
type Tally struct {
	Sent, Lost, Duplicated, Corrupted, Replayed, Oversize uint64
	// in datagrams; of them, those that vanished for being in one
	Joined, Walled uint64
	DuplicatedData uint64 // of Duplicated: data frames
	Missed         uint64 // uses of memory that was not there
	Marked         uint64 // frames of IP links that routers marked
	Trains         uint64 // frames that were received as part of a train
}

const (
	ethLen     = 14
	clearLen   = 16 // of the fixed header: authenticated, never encrypted (clause 2.2)
	typeData   = 1
	typeCrypto = 7
	overhead   = 62 // of a datagram, beyond the frame in it (clause 12.5)
)

func frameType(frame []byte) byte { return frame[ethLen] & 0xf }

// send puts a frame on the segment that its link is on.
func (w *World) send(from *Node, link int, f *frame.Tx) {
	w.Tally.Sent++
	b := f.AppendTo(make([]byte, 0, f.Len()))
	w.trace.frame(w, from, link, b)
	if link >= w.opt.Links {
		w.sendIP(from, link, f, b)
		return
	}
	seg := w.Plug[from.Index][link]
	seen := fault.Frame{Len: len(b), Data: frameType(b) == typeData, Joined: f.Joined}
	if f.Joined {
		seen.Outer = overhead
	}
	v := w.streams[seg][from.Index].Next(&w.Net[seg][from.Index], w.Now, seen)
	w.Tally.count(&v, &seen)
	for _, c := range v.Copies[:v.N] {
		w.carry(from, f.Joined, seg, b, c, v.N > 1)
	}
}

// count adds the fate of a frame.
func (t *Tally) count(v *fault.Fate, f *fault.Frame) {
	one := func(is bool) uint64 {
		if is {
			return 1
		}
		return 0
	}
	t.Lost += one(v.End == fault.Lost || v.End == fault.Full)
	t.Joined += one(f.Joined && v.End != fault.Lost)
	t.Walled += one(v.End == fault.Walled)
	t.Oversize += one(v.End == fault.Oversize)
	t.Duplicated += one(v.Twice)
	t.DuplicatedData += one(v.Twice && f.Data)
	t.Replayed += one(v.Held)
	for _, c := range v.Copies[:v.N] {
		t.Corrupted += one(c.Bit > 0)
	}
}

// carry delivers one copy of a frame to everybody on the segment that it is for.
func (w *World) carry(from *Node, joined bool, seg int, frame []byte, c fault.Copy, copied bool) {
	flipped := c.Bit / 8
	if c.Bit > 0 {
		frame = append([]byte(nil), frame...)
		frame[flipped] ^= 1 << (c.Bit % 8)
	}
	for _, n := range w.Nodes {
		for link, on := range w.Plug[n.Index] {
			to := n.mac(link)
			if on == seg && n != from && (!joined || w.joins(n.Index, link)) && !w.Apart[from.Index][n.Index] &&
				(frame[0]&1 != 0 || string(frame[:6]) == string(to[:])) {
				w.seq++
				own := append([]byte(nil), frame...)
				heap.Push(&w.queue, delivery{at: w.Now.Add(c.Wait), seq: w.seq, from: from.Index, node: n.Index,
					link: link, frame: own, flipped: flipped, copied: copied})
			}
		}
	}
}

// hearing is when frames of sessions arrived from one node at another.
type hearing struct {
	last    mono.Time
	silence mono.Time // when the latest pause of the dead time or more ended
}

func (w *World) hear(n *Node, d *delivery) {
	if h := &w.heard[d.from][n.Index]; d.flipped == 0 && frameType(d.frame) == typeData {
		if w.Now.Sub(h.last) >= w.opt.DeadTime {
			h.silence = w.Now
		}
		h.last = w.Now
	}
}

// Silent reports whether no frame of a session arrived from one node at another for the dead time, up to some moment
// not before since.
func (w *World) Silent(from, to *Node, since mono.Time) bool {
	h := &w.heard[from.Index][to.Index]
	return w.Now.Sub(h.last) >= w.opt.DeadTime || h.silence >= since
}

// together returns d and the frames that are handed over with it: those that arrive next, on the same link, before
// Options.Together is over. Time goes on to the last of them.
func (w *World) together(d delivery) []delivery {
	w.batch = append(w.batch[:0], d)
	for end := d.at.Add(w.opt.Together); w.opt.Together > 0 && len(w.queue) > 0; {
		next := &w.queue[0]
		if next.call != nil || next.node != d.node || next.link != d.link || next.at > end {
			break
		}
		w.Now = max(w.Now, next.at)
		w.batch = append(w.batch, heap.Pop(&w.queue).(delivery))
	}
	return w.batch
}

// deliver gives frames of one link to their engine and checks that the engine's counters say what happened to them
// (faults.md, U4).
func (w *World) deliver(n *Node, frames []delivery) {
	w.handled = n
	flipped := uint64(0)
	w.arrivals = w.arrivals[:0]
	for i := range frames {
		w.hear(n, &frames[i])
		a := engine.Whole(frames[i].frame)
		if frames[i].origin.Known() {
			a.Origin, a.ECN = &frames[i].origin, frames[i].ecn
		}
		w.arrivals = append(w.arrivals, a)
		if frames[i].flipped != 0 {
			flipped++
		}
	}
	was := n.E.Count
	n.E.Handle(w.Now, frames[0].link, w.arrivals...)
	now := &n.E.Count
	w.Tally.Trains += now.Placing.FramesInTrains - was.Placing.FramesInTrains
	sums := now.Reject.RejectedMalformed + now.Reject.RejectedHeaderSum + now.Reject.RejectedPayloadSum +
		now.Reject.RejectedVersion -
		was.Reject.RejectedMalformed - was.Reject.RejectedHeaderSum - was.Reject.RejectedPayloadSum -
		was.Reject.RejectedVersion
	auth := now.Reject.RejectedAuth - was.Reject.RejectedAuth
	d, excused := &frames[0], w.mixed(frames)
	if w.opt.Rekey != 0 {
		excused = auth
	}
	switch {
	case flipped == 0:
		if sums != 0 || auth > excused {
			w.fault("of %d intact frames, the first of type %d, to node%d some were rejected (%d for what they say, "+
				"%d for their seal)", len(frames), frameType(d.frame), n.Index, sums, auth)
		}
		return
	case len(frames) > 1:
		if sums > flipped || auth > flipped+excused ||
			now.Traffic.DataFramesReceived-was.Traffic.DataFramesReceived > uint64(len(frames))-flipped {
			w.fault("node%d got %d frames, %d of them corrupted, rejected %d and %d, and took %d", n.Index, len(frames),
				flipped, sums, auth, now.Traffic.DataFramesReceived-was.Traffic.DataFramesReceived)
		}
		return
	}
	if now.Traffic.DataFramesReceived != was.Traffic.DataFramesReceived ||
		now.Traffic.PayloadReceived != was.Traffic.PayloadReceived ||
		now.Op.OpsApplied != was.Op.OpsApplied ||
		now.Life.SessionsOpened != was.Life.SessionsOpened || now.Loss.FramesLost != was.Loss.FramesLost ||
		now.Op.OpsCompleted != was.Op.OpsCompleted {
		w.fault("node%d took a frame whose byte %d was corrupted", n.Index, d.flipped)
	}
	counted := sums + auth + now.Loss.FramesDuplicated - was.Loss.FramesDuplicated +
		now.Reject.UnknownSession - was.Reject.UnknownSession
	if counted > 1 || counted == 0 && !w.opt.Secure {
		w.fault("node%d counted a frame whose byte %d was corrupted %d times", n.Index, d.flipped, counted)
	}
}
