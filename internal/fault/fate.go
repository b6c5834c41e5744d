package fault

import (
	"cmp"
	"math/rand/v2"
	"time"

	"multiedge/internal/mono"
)

// header is the length of an Ethernet header.
const header = 14

// Frame is what a link knows of a frame.
type Frame struct {
	Len    int  // bytes, with the Ethernet header
	Outer  int  // bytes of a datagram around it, which Len does not count
	Data   bool // it is of a session that is up
	Joined bool // it travels in a datagram
}

// End is what a frame comes to.
type End uint8

// Ends of frames.
const (
	Passes   End = iota
	Lost         // by chance, or on a link that is cut
	Full         // the queue of a limited link has no room
	Walled       // in a datagram
	Oversize     // longer than the link carries
)

// Fate is what becomes of one frame.
type Fate struct {
	End    End
	Twice  bool
	Late   bool // held back by ReorderBy
	Held   bool // another copy comes much later
	N      int  // copies that arrive; 0 unless it passes
	Copies [3]Copy
}

// Copy is one of the copies in which a frame arrives.
type Copy struct {
	Wait time.Duration // from now until it arrives
	Bit  int           // which bit of it is flipped, counted from the start of the frame; 0: none
}

// Stream draws the fates of frames that go one way over a link. Not safe for concurrent use.
type Stream struct {
	dice  *rand.Rand
	keyed *keyed    // the source of dice; nil: another, which streams may share
	burst int       // losses still owed
	until mono.Time // frames before take a limited link until then
}

// By returns a stream that throws dice, which other streams may throw as well.
func By(dice *rand.Rand) Stream { return Stream{dice: dice} }

// Keyed returns the stream of what a host sends on a link. Its frame number i has the same fate in every run with the
// same seed and faults, whatever the timing; only bursts of losses and the queue of a limited link depend on the frames
// before it.
func Keyed(seed uint64, link, host int) Stream {
	k := &keyed{key: mix(mix(seed) ^ uint64(link)<<32 ^ uint64(host))}
	return Stream{dice: rand.New(k), keyed: k}
}

// Next draws the fate of the next frame, which is sent now.
func (s *Stream) Next(f *Faults, now mono.Time, frame Frame) (v Fate) {
	if s.keyed != nil {
		s.keyed.next()
	}
	wait, full := time.Duration(0), false
	switch {
	case f.Cut || s.loses(f):
		v.End = Lost
	case frame.Joined && f.Walled:
		v.End = Walled
	case f.Longest > 0 && frame.Len+frame.Outer > f.Longest+header:
		v.End = Oversize
	default:
		if wait, full = s.queue(f, now, frame.Len); full {
			v.End = Full
		}
	}
	if v.End != Passes {
		return v
	}
	v.Twice = s.dice.Float64() < f.Dup
	v.Held = f.Hold > 0 && s.dice.Float64() < f.Hold && (f.HoldSetup || frame.Data)
	if v.Late = f.Reorder > 0 && s.dice.Float64() < f.Reorder; v.Late {
		wait += cmp.Or(f.ReorderBy, time.Millisecond)
	}
	v.add(s.copy(f, wait, frame.Len))
	if v.Twice {
		v.add(s.copy(f, wait, frame.Len))
	}
	if v.Held {
		wait += time.Duration(s.dice.Int64N(max(int64(f.HoldFor), 1)))
		v.add(s.copy(f, wait, frame.Len))
	}
	return v
}

func (v *Fate) add(c Copy) {
	v.Copies[v.N] = c
	v.N++
}

// loses draws whether a frame is lost. A run starts after a delivered frame; its chance makes the share of lost frames
// come out as Loss.
func (s *Stream) loses(f *Faults) bool {
	if s.burst > 0 {
		s.burst--
		return true
	}
	start, run := f.Loss, max(f.Burst, 1)
	if run > 1 {
		start = f.Loss / (float64(run)*(1-f.Loss) + f.Loss)
	}
	if s.dice.Float64() >= start {
		return false
	}
	s.burst = run - 1
	return true
}

// queue is how long a frame waits for and takes a limited link, or that it finds no room before it.
func (s *Stream) queue(f *Faults, now mono.Time, length int) (wait time.Duration, full bool) {
	if f.Rate == 0 {
		return 0, false
	}
	if f.Queue > 0 && s.until > now.Add(f.Queue) {
		return 0, true
	}
	s.until = max(s.until, now).Add(time.Duration(float64(length) / f.Rate * 1e9))
	return s.until.Sub(now), false
}

// copy draws what becomes of one copy of a frame.
func (s *Stream) copy(f *Faults, wait time.Duration, length int) (c Copy) {
	if s.dice.Float64() < f.Corrupt && length > header {
		c.Bit = 8 * (header + s.dice.IntN(length-header))
		c.Bit += s.dice.IntN(8)
	}
	c.Wait = wait + f.Delay
	if f.Jitter > 0 {
		c.Wait += time.Duration(s.dice.Int64N(int64(f.Jitter)))
	}
	return c
}

// keyed is a source of random numbers of which each frame has its own.
type keyed struct{ key, frame, throw uint64 }

// throws is more than a frame needs.
const throws = 32

func (k *keyed) next() {
	k.frame++
	k.throw = 0
}

// Uint64 implements rand.Source.
func (k *keyed) Uint64() uint64 {
	k.throw++
	return mix(k.key + k.frame*throws + k.throw)
}

// mix is the finisher of splitmix64: a bijection that scatters neighbouring values.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
