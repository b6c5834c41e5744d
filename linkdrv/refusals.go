package linkdrv

import "time"

// A device that is full says ENOBUFS, and so does one that never takes a frame: a veth whose peer has a smaller MTU, or
// one without carrier. The first has room again within the time that the frames in it take on the wire. A frame that
// is refused for longer is lost, or all behind it, those that keep the link alive too, would wait for ever.

// refusedTime is how long a frame is offered again. A full ring of an interface of 100 Mbit/s has room sooner.
const refusedTime = 10 * time.Millisecond

// knownTime is how long a length that did not pass is remembered: a device that was stopped for longer than refusedTime
// takes it again. Super-frames, whose passing says nothing of it, do not keep it for ever.
const knownTime = time.Second

// refusals follows what the device refuses. The zero refusals is ready.
type refusals struct {
	since time.Time // of the refusal of the next frame; zero: it was not refused
	last  time.Time // of the latest refusal
	known time.Time // when length became known
	// frames of this length and more did not pass: they are not offered twice, or a queue full of them would block the
	// link for refusedTime each; 0: none
	length int
}

// any reports whether the latest frame, or one of some length, was refused.
func (r *refusals) any() bool { return r.length > 0 || !r.since.IsZero() }

// lost reports whether a frame of that length, which was refused just now, does not pass.
func (r *refusals) lost(length int) bool {
	now := time.Now()
	if r.length > 0 && now.Sub(r.known) > knownTime {
		r.length = 0
	}
	if r.length > 0 && length >= r.length {
		r.since = time.Time{}
		return true
	}
	if r.since.IsZero() || now.Sub(r.last) > refusedTime { // the frame that was refused before is not offered any more
		r.since = now
	}
	r.last = now
	if now.Sub(r.since) < refusedTime {
		return false
	}
	*r = refusals{length: length, known: now}
	return true
}

// passed notes that the device took the first so many messages of frames. One of several frames says nothing of their
// length: virtual links hand it over whole.
func (r *refusals) passed(q queue, frames []TxFrame, messages int) {
	r.since = time.Time{}
	for i, first := 0, 0; i < messages && r.length > 0; i++ {
		next := q.frames(i + 1)
		if next == first+1 && frames[first].Len() >= r.length {
			r.length = 0
		}
		first = next
	}
}
