package remap

// spare is memory in which payloads are received that are to be copied to their place.
type spare struct {
	bytes []byte
	used  int
	lent  []loan // of this round
}

// loan is a piece of it given out for the bytes whose place is at an address.
type loan struct {
	place uintptr
	bytes []byte
}

// maxLoans is how many payloads of up to 64 KiB can be received in one round that are to be copied: no driver receives
// more at once.
const maxLoans = 32

func (s *spare) init() {
	s.lent = make([]loan, 0, maxLoans)
	s.bytes = make([]byte, maxLoans<<16)
}

// reset takes everything back.
func (s *spare) reset() { s.used, s.lent = 0, s.lent[:0] }

// lend returns a buffer from which the payload will be copied to dst, or dst itself when all are lent.
func (s *spare) lend(dst []byte) []byte {
	n := len(dst)
	if n == 0 || len(s.lent) == cap(s.lent) || s.used+n > len(s.bytes) {
		return dst
	}
	b := s.bytes[s.used : s.used+n : s.used+n]
	s.used += n
	s.lent = append(s.lent, loan{address(dst), b})
	return b
}

// lentFor reports whether body lies where the bytes whose place is at an address were to be received.
func (s *spare) lentFor(place uintptr, body []byte) bool {
	for i := range s.lent {
		if l := &s.lent[i]; l.place == place && len(l.bytes) >= len(body) && &l.bytes[0] == &body[0] {
			return true
		}
	}
	return false
}
