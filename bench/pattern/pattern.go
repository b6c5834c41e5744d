// Package pattern makes message contents that give themselves away, and checks memory against them.
//
// A benchmark with integrity checking fills its source memory with patterned slots once, sends message after message
// from them, and the receiver compares every byte of every message, once it was told that the message is there, and the
// canaries around it. Contents are laid out so that each pass over a destination slot brings other bytes than the pass
// before: stale memory is as wrong as a flipped bit.
package pattern

import "math/bits"

// period is the length of the table that contents are cut from. It is prime: contents of different messages start at
// different places, and no power of two shifts the table onto itself, so bytes that land at a wrong offset do not fit.
const period = 262147

// stride separates the starting places of consecutive messages; about 0.618 of period.
const stride = 162013

// Source makes and recognises contents. Both ends of a benchmark make the same Source from the same seed.
type Source struct {
	table [period]byte
}

// New returns the source of a seed.
func New(seed uint64) *Source {
	s := new(Source)
	x := seed
	for i := range s.table {
		if i%8 == 0 {
			x += 0x9E3779B97F4A7C15
		}
		s.table[i] = byte(mix(x) >> (8 * (i % 8)))
	}
	return s
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// start is where the content id begins in the table. Contents whose ids differ by less than period never begin at the
// same place.
func start(id uint64) int {
	hi, lo := bits.Mul64(id%period, stride)
	_, rem := bits.Div64(hi, lo, period)
	return int(rem)
}

// Fill writes content id over dst.
func (s *Source) Fill(dst []byte, id uint64) {
	for at := start(id); len(dst) > 0; at = 0 {
		n := copy(dst, s.table[at:])
		dst = dst[n:]
	}
}

// Mismatch compares got with content id. It returns how many bytes differ and the index of the first, -1 when none
// does.
func (s *Source) Mismatch(got []byte, id uint64) (wrong, first int) {
	first = -1
	for at, done := start(id), 0; done < len(got); at = 0 {
		n := min(len(got)-done, period-at)
		piece, want := got[done:done+n], s.table[at:at+n]
		if string(piece) != string(want) { // compared in wide words, no copy
			for i := range piece {
				if piece[i] != want[i] {
					wrong++
					if first < 0 {
						first = done + i
					}
				}
			}
		}
		done += n
	}
	return wrong, first
}
