package lab

import "math"

// fate is what happens to one frame.
type fate struct {
	lost      bool
	twice     bool
	late      bool
	corrupted bool
	bit       int // to flip, if corrupted
}

// stream draws the fates of the frames of one direction of a link. Frame i of a stream has the same fate in every run
// with the same seed and faults, whatever the timing; only bursts of losses depend on the frames before. Not safe for
// concurrent use.
type stream struct {
	key   uint64
	index uint64 // of the next frame
	burst int    // losses still owed
}

// newStream makes the stream of frames that a host sends on a link.
func newStream(seed uint64, link, host int) stream {
	return stream{key: mix(mix(seed) ^ uint64(link)<<32 ^ uint64(host))}
}

// next draws the fate of the next frame, of the given length in bytes.
func (s *stream) next(f *Faults, length int) (v fate) {
	i := s.index
	s.index++
	if s.burst > 0 {
		s.burst--
		return fate{lost: true}
	}
	draw := unit(mix(s.key + 4*i))
	run := max(f.Burst, 1)
	// A run starts after a delivered frame; this chance makes the share of lost frames come out as Loss.
	start := f.Loss
	if run > 1 {
		start = f.Loss / (float64(run)*(1-f.Loss) + f.Loss)
	}
	switch {
	case draw < start:
		s.burst = run - 1
		return fate{lost: true}
	case draw < start+f.Corrupt:
		if bits := (length - ethernetHeader) * 8; bits > 0 {
			v.corrupted = true
			v.bit = ethernetHeader*8 + int(mix(s.key+4*i+1)%uint64(bits))
		}
	case draw < start+f.Corrupt+f.Dup:
		v.twice = true
	}
	v.late = f.Reorder > 0 && unit(mix(s.key+4*i+2)) < f.Reorder
	return v
}

// unit maps 64 random bits to [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (math.MaxUint64>>11 + 1) }

// mix is the finisher of splitmix64: a bijection that scatters neighbouring values.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
