package wire

import "encoding/binary"

// Next decodes the first segment of tail into s and returns what follows it. WriteNext is resolved against prev, the Write or
// WriteNext decoded before it in the same frame: decode a tail into one Segment again and again and pass that same Segment.
func (s *Segment) Next(tail []byte) (rest []byte, err error) {
	if len(tail) < 4 {
		return nil, ErrSegment
	}
	k := Kind(tail[0])
	if int(k) >= len(fixedLen) {
		return nil, ErrKind
	}
	n := fixedLen[k]
	if len(tail) < n {
		return nil, ErrSegment
	}
	be := binary.BigEndian
	prev := s.Kind
	s.Kind, s.Flags, s.Data = k, tail[1], nil
	variable := int(be.Uint16(tail[2:]))
	if byteOneIsZero[k] && tail[1] != 0 {
		return nil, ErrReserved
	}
	switch k {
	case KindPad, KindPing:
	case KindWrite, KindReadRequest:
		return s.nextOperation(tail, n, variable)
	case KindWriteNext:
		if prev != KindWrite && prev != KindWriteNext || tail[1]&^uint8(segFlagsKnown) != 0 {
			return nil, ErrSegment
		}
		s.Op++
		s.Place = be.Uint64(tail[4:])
		if s.Flags&SegNotify != 0 {
			if len(tail) < n+4 {
				return nil, ErrSegment
			}
			s.Imm = be.Uint32(tail[n:])
			n += 4
		}
	case KindReadData:
		if tail[1]&^uint8(segFlagsKnown) != 0 {
			return nil, ErrReserved
		}
		s.Conn, s.Op, s.Place = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:])
	case KindOpAck:
		if variable&0xff != 0 || tail[2] != 0 {
			return nil, ErrReserved
		}
		variable = 8 * int(tail[1])
		s.Conn, s.Op, s.Limit = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint32(tail[12:])
	case KindOpNak:
		s.Status, s.Conn, s.Op = tail[1], be.Uint32(tail[4:]), be.Uint32(tail[8:])
	case KindAck:
		variable = 8 * int(tail[3])
		s.Path, s.Flags, s.Delay = tail[1], tail[2], be.Uint32(tail[4:])
		s.Size, s.Place = be.Uint64(tail[8:]), be.Uint64(tail[16:])
		if s.Flags&^uint8(AckNack) != 0 || s.Path > 63 {
			return nil, ErrReserved
		}
		if s.Place > s.Size && (s.Place-s.Size > 1 || variable != 0) {
			return nil, ErrSegment
		}
	case KindOpen:
		return s.nextOpen(tail, variable)
	case KindAccept:
		s.Conn, s.From, s.Limit = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint32(tail[12:])
		if variable > MaxPrivate {
			return nil, ErrSegment
		}
	case KindClose:
		s.Status, s.Flags, s.Conn = tail[1], tail[3], be.Uint32(tail[4:])
		if variable&^CloseUnanswered != 0 {
			return nil, ErrReserved
		}
		variable = 0
	case KindRefuse:
		s.Status, s.Conn = tail[1], be.Uint32(tail[4:])
		if variable > MaxText {
			return nil, ErrSegment
		}
	case KindAdvert:
		s.Perm, s.Conn, s.Op, s.Key, s.Size = tail[1], be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:]), be.Uint64(tail[20:])
		if s.Perm&^3 != 0 {
			return nil, ErrReserved
		}
		if variable > MaxServiceName || len(tail) < n+variable {
			return nil, ErrSegment
		}
		s.Name = tail[n : n+variable]
		return tail[n+variable:], nil
	case KindWithdraw:
		s.Conn, s.Op, s.Key = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:])
	case KindProbe, KindEcho:
		s.Place = be.Uint64(tail[4:])
	case KindLink:
		s.Flags, s.Data = 0, tail[1:linkLen]
		return tail[linkLen:], (&LinkInfo{}).Decode(s.Data)
	}
	if hasNoVariable[k] && variable != 0 {
		return nil, ErrReserved
	}
	if len(tail) < n+variable {
		return nil, ErrSegment
	}
	s.Data = tail[n : n+variable]
	return tail[n+variable:], nil
}

var byteOneIsZero = [len(fixedLen)]bool{
	KindPad: true, KindAccept: true, KindWithdraw: true, KindPing: true, KindProbe: true, KindEcho: true,
}

var hasNoVariable = [len(fixedLen)]bool{
	KindOpNak: true, KindWithdraw: true, KindPing: true, KindProbe: true, KindEcho: true,
}

// nextOperation decodes Write and ReadRequest, whose fence and immediate are present only with their flags.
func (s *Segment) nextOperation(tail []byte, n, variable int) ([]byte, error) {
	be := binary.BigEndian
	n += optional(s.Flags)
	if s.Flags&^uint8(segFlagsKnown) != 0 {
		return nil, ErrReserved
	}
	if s.Kind == KindReadRequest && variable != 0 {
		return nil, ErrReserved
	}
	if len(tail) < n+variable {
		return nil, ErrSegment
	}
	s.Conn, s.Op = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	at := 12
	if s.Flags&SegFenced != 0 {
		s.Fence = be.Uint32(tail[at:])
		at += 4
	}
	s.Key, s.Place = be.Uint64(tail[at:]), be.Uint64(tail[at+8:])
	at += 16
	if s.Kind == KindReadRequest {
		s.Size = be.Uint64(tail[at:])
		at += 8
	}
	if s.Flags&SegNotify != 0 {
		s.Imm = be.Uint32(tail[at:])
	}
	s.Data = tail[n : n+variable]
	return tail[n+variable:], nil
}

func (s *Segment) nextOpen(tail []byte, variable int) ([]byte, error) {
	if s.Flags&^uint8(OpenOrdered) != 0 {
		return nil, ErrReserved
	}
	s.From = binary.BigEndian.Uint32(tail[4:])
	s.Limit = binary.BigEndian.Uint32(tail[8:])
	name := int(tail[12])
	if variable < 1+name || name > MaxServiceName || variable-1-name > MaxPrivate || len(tail) < 12+variable {
		return nil, ErrSegment
	}
	s.Name = tail[13 : 13+name]
	s.Data = tail[13+name : 12+variable]
	return tail[12+variable:], nil
}
