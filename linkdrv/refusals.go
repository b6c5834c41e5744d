package linkdrv

import "time"

// A device that is full says ENOBUFS, and so does one that never takes a frame: a veth whose peer has a smaller MTU, or
// one without carrier. A full device has room again when its frames have left, which takes long where it is slow or its
// host does not run it: its frames wait, as in the paper's send queue. A frame that never passes must not wait, or all
// behind it, those that keep the link alive too, would wait with it.
//
// They are told apart by length. A frame that was refused for refusedTime lets the shortest behind it go first. If that
// passes, the device is not full: the long frame is lost unless it passes within refusedTime from then on. If the short
// one is refused too, all wait, for fullTime at most.

// refusedTime is how long a frame is offered again before its length is doubted. A full ring of an interface of 100
// Mbit/s has room sooner.
const refusedTime = 10 * time.Millisecond

// fullTime is how long a device that takes nothing is taken for full. After as long without an answer to its probes the
// engine declares a path dead, if another is good (path.deadAfter): then waiting frames need not wait for the device.
const fullTime = 200 * time.Millisecond

// knownTime is how long a length that did not pass is remembered: a device that was stopped for longer than fullTime
// takes it again. Super-frames, whose passing says nothing of it, do not keep it for ever.
const knownTime = time.Second

// verdict is what becomes of a frame that was refused.
type verdict uint8

const (
	waits    verdict = iota // it is offered again
	doubtful                // likewise; a shorter one may go first
	lost                    // it does not pass
)

// refusals follows what the device refuses. The zero refusals is ready.
type refusals struct {
	since   time.Time // of the refusal of the next frame; zero: it was not refused
	last    time.Time // of the latest refusal
	doubted int       // length of the frame that let a shorter one go first; 0: none did
	shorter time.Time // when a shorter one passed since; zero: none did
	known   time.Time // when length became known
	// frames of this length and more did not pass: they are not offered twice, or a queue full of them would block the
	// link for refusedTime each; 0: none
	length int
}

// any reports whether the latest frame, or one of some length, was refused.
func (r *refusals) any() bool { return r.length > 0 || !r.since.IsZero() }

// judge says what becomes of a frame of that length, which was refused just now.
func (r *refusals) judge(length int) verdict {
	now := time.Now()
	if r.length > 0 && now.Sub(r.known) > knownTime {
		r.length = 0
	}
	if r.length > 0 && length >= r.length {
		r.accept()
		return lost
	}
	switch gap := now.Sub(r.last); {
	case r.since.IsZero(), gap > fullTime: // the frame that was refused before is not offered any more
		r.accept()
		r.since = now
	case gap > refusedTime: // a sender that waits for its processor for longer has learnt no more of the device
		r.since = r.since.Add(gap - refusedTime)
	}
	r.last = now
	refused := now.Sub(r.since)
	switch {
	case refused >= fullTime, !r.shorter.IsZero() && length >= r.doubted && now.Sub(r.shorter) >= refusedTime:
		*r = refusals{length: length, known: now}
		return lost
	case refused >= refusedTime && r.doubted == 0:
		r.doubted = length
		return doubtful
	}
	return waits
}

// accept ends the refusal of the next frame.
func (r *refusals) accept() { r.since, r.doubted, r.shorter = time.Time{}, 0, time.Time{} }

// passed notes that the device took the first so many messages of frames. One of several frames does not show that
// frames of their length pass alone: virtual links hand it over whole. It ends a doubt, however: a frame that was
// doubted may be in it, and the next that is refused has its own time to wait for a full device.
func (r *refusals) passed(q queue, frames []TxFrame, messages int) {
	longest, alone := 0, 0 // of all frames, of those that went alone
	for i, first := 0, 0; i < messages; i++ {
		next := q.frames(i + 1)
		for k := first; k < next; k++ {
			longest = max(longest, frames[k].Len())
		}
		if next == first+1 {
			alone = max(alone, frames[first].Len())
		}
		first = next
	}
	if alone >= r.length {
		r.length = 0
	}
	switch {
	case messages == 0:
	case longest >= r.doubted:
		r.accept()
	case r.shorter.IsZero():
		r.shorter = time.Now()
	}
}

// shortestFirst lets the shortest of some frames go first. It reports false if the first is the shortest.
func shortestFirst(frames []TxFrame) bool {
	k := 0
	for i := range frames {
		if frames[i].Len() < frames[k].Len() {
			k = i
		}
	}
	frames[0], frames[k] = frames[k], frames[0]
	return k > 0
}
