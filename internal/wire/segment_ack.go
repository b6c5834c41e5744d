package wire

import "slices"

// Segments that acknowledge: OpAck and OpNak speak of operations (clauses 7.1, 6.9), Ack of frames (clause 8.1).

const (
	opAckLen = 16
	ackLen   = 24
)

// ackMarks is the length of an Ack's counts of marks.
func ackMarks(flags uint8) int {
	if flags&AckMarks != 0 {
		return 8
	}
	return 0
}

func putOpAck(s *Segment, b []byte) []byte {
	at := len(b)
	b = slices.Grow(b, opAckLen)[:at+opAckLen]
	h := b[at:][:opAckLen]
	h[0], h[1], h[2], h[3] = byte(KindOpAck), byte(len(s.Data)/8), 0, 0
	be.PutUint32(h[4:], s.Conn)
	be.PutUint32(h[8:], s.Op)
	be.PutUint32(h[12:], s.Limit)
	return b
}

func nextOpAck(s *Segment, tail []byte, n int) (int, error) {
	if n != 0 {
		return 0, ErrReserved
	}
	s.Conn, s.Op, s.Limit = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint32(tail[12:])
	return 8 * int(tail[1]), nil
}

func putOpNak(s *Segment, b []byte) []byte {
	b = append(b, byte(KindOpNak), s.Status, 0, 0)
	b = be.AppendUint32(b, s.Conn)
	return be.AppendUint32(b, s.Op)
}

func nextOpNak(s *Segment, tail []byte, _ int) (int, error) {
	if tail[1] == 0 {
		return 0, ErrReserved
	}
	s.Status, s.Conn, s.Op = tail[1], be.Uint32(tail[4:]), be.Uint32(tail[8:])
	return 0, nil
}

func putAck(s *Segment, b []byte) []byte {
	at := len(b)
	b = slices.Grow(b, ackLen)[:at+ackLen]
	h := b[at:][:ackLen]
	h[0], h[1], h[2], h[3] = byte(KindAck), s.Path, s.Flags, byte(len(s.Data)/8)
	be.PutUint32(h[4:], s.Delay)
	be.PutUint64(h[8:], s.Size)
	be.PutUint64(h[16:], s.Place)
	if s.Flags&AckMarks != 0 {
		b = be.AppendUint32(b, s.Window)
		b = be.AppendUint32(b, s.Limit)
	}
	return b
}

func (s *Segment) nextAck(tail []byte) (rest []byte, err error) {
	if len(tail) < ackLen {
		return nil, ErrSegment
	}
	s.Kind, s.Path, s.Flags, s.Delay = KindAck, tail[1], tail[2], be.Uint32(tail[4:])
	s.Size, s.Place = be.Uint64(tail[8:]), be.Uint64(tail[16:])
	at := ackLen + ackMarks(s.Flags)
	end := at + 8*int(tail[3])
	switch {
	case s.Flags&^uint8(AckNack|AckMarks) != 0 || s.Path > 63:
		return nil, ErrReserved
	case len(tail) < end || s.Place > s.Size && (s.Place-s.Size > 1 || tail[3] != 0):
		return nil, ErrSegment
	}
	s.Window, s.Limit = 0, 0
	if at > ackLen {
		s.Window, s.Limit = be.Uint32(tail[ackLen:]), be.Uint32(tail[ackLen+4:])
	}
	s.Data = tail[at:end]
	return tail[end:], nil
}

// AckLen is the length of an Ack segment of those flags with so many bitmap words.
func AckLen(flags uint8, words int) int { return ackLen + ackMarks(flags) + 8*words }

// PutAck writes an Ack segment with the given bitmap words to b, which is exactly as long as it.
func PutAck(b []byte, s *Segment, words []uint64) {
	putAck(s, b[:0])
	b[3] = byte(len(words))
	for i, w := range words {
		be.PutUint64(b[AckLen(s.Flags, i):], w)
	}
}

// PutOpAck writes an OpAck segment with words bitmap words to b, which is exactly as long as it; bit says what bit i
// is.
func PutOpAck(b []byte, s *Segment, words int, bit func(i int) bool) {
	putOpAck(s, b[:0])
	b[1] = byte(words)
	for w := range words {
		var v uint64
		for i := range 64 {
			if bit(64*w + i) {
				v |= 1 << i
			}
		}
		be.PutUint64(b[opAckLen+8*w:], v)
	}
}
