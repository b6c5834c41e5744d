package sim

import (
	"container/heap"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Faults is what one direction of one segment does to frames. Probabilities are per frame.
type Faults struct {
	Loss, Dup, Corrupt float64
	Hold               float64       // another copy is kept back and delivered much later
	HoldFor            time.Duration // at most so much later
	HoldSetup          bool          // frames that set sessions up too, not only data
	Delay              time.Duration // of every frame
	Jitter             time.Duration // more, uniformly: frames overtake each other
	Rate               float64       // bytes per second; 0: unlimited
	// what the queue of a limited link holds, as time; beyond it frames are dropped. 0: no bound
	Queue  time.Duration
	Most   int  // longer frames vanish, in bytes after the Ethernet header; 0: none do
	Walled bool // datagrams vanish
	Cut    bool
}

// Tally counts what the network did to frames.
type Tally struct {
	Sent, Lost, Duplicated, Corrupted, Replayed, Oversize uint64
	// in datagrams; of them, those that vanished for being in one
	Joined, Walled uint64
	DuplicatedData uint64 // of Duplicated: data frames
	Missed         uint64 // uses of memory that was not there
}

const (
	ethLen   = 14
	clearLen = 16 // of the fixed header: authenticated, never encrypted (clause 2.2)
	typeData = 1
	overhead = 62 // of a datagram, beyond the frame in it (clause 12.5)
)

func frameType(frame []byte) byte { return frame[ethLen] & 0xf }

// send puts a frame on the segment that its link is on.
func (w *World) send(from *Node, f *engine.TxFrame) {
	w.Sent++
	frame := f.AppendTo(make([]byte, 0, f.Len()))
	w.trace.frame(w, from, f.Link, frame)
	seg := w.Plug[from.Index][f.Link]
	net := &w.Net[seg][from.Index]
	if net.Cut || w.rng.Float64() < net.Loss {
		w.Lost++
		return
	}
	size := len(frame)
	if f.Joined {
		w.Joined++
		size += overhead
		if net.Walled {
			w.Tally.Walled++
			return
		}
	}
	if net.Most > 0 && size > net.Most+ethLen {
		w.Oversize++
		return
	}
	at := w.Now
	if net.Rate > 0 {
		busy := &w.busy[seg][from.Index]
		if net.Queue > 0 && *busy > at.Add(net.Queue) {
			w.Lost++
			return
		}
		*busy = max(*busy, at).Add(time.Duration(float64(len(frame)) / net.Rate * 1e9))
		at = *busy
	}
	wait := at.Sub(w.Now)
	twice := w.rng.Float64() < net.Dup
	held := net.Hold > 0 && w.rng.Float64() < net.Hold && (net.HoldSetup || frameType(frame) == typeData)
	w.carry(from, f, seg, frame, wait, twice || held)
	if twice {
		w.Duplicated++
		if frameType(frame) == typeData {
			w.DuplicatedData++
		}
		w.carry(from, f, seg, frame, wait, true)
	}
	if held {
		w.Replayed++
		w.carry(from, f, seg, frame, wait+time.Duration(w.rng.Int64N(int64(net.HoldFor))), true)
	}
}

// carry delivers one copy of a frame to everybody on the segment that it is for, after wait and the segment's delay.
func (w *World) carry(from *Node, f *engine.TxFrame, seg int, frame []byte, wait time.Duration, copied bool) {
	net, flipped := &w.Net[seg][from.Index], 0
	if w.rng.Float64() < net.Corrupt {
		frame = append([]byte(nil), frame...)
		flipped = ethLen + w.rng.IntN(len(frame)-ethLen)
		frame[flipped] ^= 1 << w.rng.IntN(8)
		w.Corrupted++
	}
	wait += net.Delay
	if net.Jitter > 0 {
		wait += time.Duration(w.rng.Int64N(int64(net.Jitter)))
	}
	for _, n := range w.Nodes {
		for link, on := range w.Plug[n.Index] {
			to := n.mac(link)
			if on == seg && n != from && (!f.Joined || w.joins(n.Index, link)) && !w.Apart[from.Index][n.Index] &&
				(frame[0]&1 != 0 || string(frame[:6]) == string(to[:])) {
				w.seq++
				own := append([]byte(nil), frame...)
				heap.Push(&w.queue, delivery{at: w.Now.Add(wait), seq: w.seq, from: from.Index, node: n.Index,
					link: link, frame: own,
					flipped: flipped, copied: copied})
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

// deliver gives a frame to its engine and checks that the engine's counters say what happened to it (faults.md, U4).
func (w *World) deliver(n *Node, d *delivery) {
	w.handled = n
	w.hear(n, d)
	was := n.E.Count
	n.E.Handle(w.Now, d.link, engine.Whole(d.frame))
	now := &n.E.Count
	sums := now.RejectedMalformed + now.RejectedHeaderSum + now.RejectedPayloadSum + now.RejectedVersion -
		was.RejectedMalformed - was.RejectedHeaderSum - was.RejectedPayloadSum - was.RejectedVersion
	auth := now.RejectedAuth - was.RejectedAuth
	if d.flipped == 0 {
		if sums != 0 || auth != 0 && w.opt.Rekey == 0 {
			w.fault("an intact frame of type %d to node%d was rejected (%d for what it says, %d for its seal)",
				frameType(d.frame), n.Index, sums, auth)
		}
		return
	}
	if now.DataFramesReceived != was.DataFramesReceived || now.PayloadReceived != was.PayloadReceived ||
		now.OpsApplied != was.OpsApplied ||
		now.SessionsOpened != was.SessionsOpened || now.FramesLost != was.FramesLost ||
		now.OpsCompleted != was.OpsCompleted {
		w.fault("node%d took a frame whose byte %d was corrupted", n.Index, d.flipped)
	}
	counted := sums + auth + now.FramesDuplicated - was.FramesDuplicated + now.UnknownSession - was.UnknownSession
	if counted > 1 || counted == 0 && !w.opt.Secure {
		w.fault("node%d counted a frame whose byte %d was corrupted %d times", n.Index, d.flipped, counted)
	}
}
