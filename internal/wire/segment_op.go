package wire

import "slices"

// Segments of operations (clause 6), a pair of functions for each kind.

const (
	writeNextLen   = 12
	readRequestLen = 36
	readDataLen    = 20
)

func putWrite(s *Segment, b []byte) []byte {
	b = append(b, byte(KindWrite), s.Flags)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	b = putTarget(s, b)
	if s.Flags&SegNotify != 0 {
		b = be.AppendUint32(b, s.Imm)
	}
	return b
}

func nextWrite(s *Segment, tail []byte, n int) (int, error) {
	if at := s.nextTarget(tail); s.Flags&SegNotify != 0 {
		s.Imm = be.Uint32(tail[at:])
	}
	return n, nil
}

// putTarget appends what operation a segment is of, and which remote memory it is about.
func putTarget(s *Segment, b []byte) []byte {
	b = be.AppendUint32(b, s.Conn)
	b = be.AppendUint32(b, s.Op)
	if s.Flags&SegFenced != 0 {
		b = be.AppendUint32(b, s.Fence)
	}
	b = be.AppendUint64(b, s.Key)
	return be.AppendUint64(b, s.Place)
}

// nextTarget decodes what putTarget appended and returns where the next field is.
func (s *Segment) nextTarget(tail []byte) (at int) {
	s.Conn, s.Op = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	at = 12
	if s.Flags&SegFenced != 0 {
		s.Fence = be.Uint32(tail[at:])
		at += 4
	}
	s.Key, s.Place = be.Uint64(tail[at:]), be.Uint64(tail[at+8:])
	return at + 16
}

// WriteNext is a Write that has the connection, key and fence of the one before it in the frame, and the next number.

func putWriteNext(s *Segment, b []byte) []byte {
	return appendWriteNext(b, s.Flags, len(s.Data), s.Place, s.Imm)
}

func appendWriteNext(b []byte, flags uint8, n int, place uint64, imm uint32) []byte {
	at := len(b)
	b = slices.Grow(b, writeNextLen+4)[:at+writeNextLen]
	h := b[at:][:writeNextLen]
	h[0], h[1] = byte(KindWriteNext), flags
	be.PutUint16(h[2:], uint16(n))
	be.PutUint64(h[4:], place)
	if flags&SegNotify != 0 {
		b = be.AppendUint32(b, imm)
	}
	return b
}

// WriteNextLen is the length of a WriteNext with n bytes.
func WriteNextLen(flags uint8, n int) int { return writeNextLen + int(flags&SegNotify)*4/SegNotify + n }

// AppendWriteNext is AppendTo for a WriteNext, without a Segment: a frame has hundreds of them.
func AppendWriteNext(b []byte, flags uint8, place uint64, imm uint32, data []byte) []byte {
	return append(appendWriteNext(b, flags, len(data), place, imm), data...)
}

// nextWriteNext is all of Next for a WriteNext, as are those of the other frequent kinds: the way through the table
// takes twice as long.
func (s *Segment) nextWriteNext(tail []byte) (rest []byte, err error) {
	flags, n := tail[1], writeNextLen
	if s.Kind != KindWrite && s.Kind != KindWriteNext || flags&^uint8(segFlagsKnown) != 0 || len(tail) < n {
		return nil, ErrSegment
	}
	s.Kind, s.Flags = KindWriteNext, flags
	s.Op++
	s.Place = be.Uint64(tail[4:])
	if flags&SegNotify != 0 {
		if len(tail) < n+4 {
			return nil, ErrSegment
		}
		s.Imm = be.Uint32(tail[n:])
		n += 4
	}
	end := n + int(be.Uint16(tail[2:]))
	if len(tail) < end {
		return nil, ErrSegment
	}
	s.Data = tail[n:end]
	return tail[end:], nil
}

func putReadRequest(s *Segment, b []byte) []byte {
	b = append(b, byte(s.Kind), s.Flags, 0, 0)
	b = putTarget(s, b)
	b = be.AppendUint64(b, s.Size)
	if s.Flags&SegNotify != 0 {
		b = be.AppendUint32(b, s.Imm)
	}
	return b
}

func (s *Segment) nextReadRequest(tail []byte) (rest []byte, err error) {
	flags := tail[1]
	n := readRequestLen + optional(flags)
	if flags&reserved != 0 || be.Uint16(tail[2:]) != 0 {
		return nil, ErrReserved
	}
	if len(tail) < n {
		return nil, ErrSegment
	}
	s.Kind, s.Flags, s.Data = KindReadRequest, flags, nil
	at := s.nextTarget(tail)
	s.Size = be.Uint64(tail[at:])
	if flags&SegNotify != 0 {
		s.Imm = be.Uint32(tail[at+8:])
	}
	return tail[n:], nil
}

func putReadData(s *Segment, b []byte) []byte {
	at := len(b)
	b = slices.Grow(b, readDataLen)[:at+readDataLen]
	h := b[at:][:readDataLen]
	h[0], h[1] = byte(KindReadData), s.Flags
	be.PutUint16(h[2:], uint16(len(s.Data)))
	be.PutUint32(h[4:], s.Conn)
	be.PutUint32(h[8:], s.Op)
	be.PutUint64(h[12:], s.Place)
	return b
}

func (s *Segment) nextReadData(tail []byte) (rest []byte, err error) {
	flags, end := tail[1], readDataLen+int(be.Uint16(tail[2:]))
	if flags&reserved != 0 {
		return nil, ErrReserved
	}
	if len(tail) < end {
		return nil, ErrSegment
	}
	s.Kind, s.Flags = KindReadData, flags
	s.Conn, s.Op, s.Place = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:])
	s.Data = tail[readDataLen:end]
	return tail[end:], nil
}
