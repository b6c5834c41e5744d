package wire

// Segments that open and close connections and name exported memory (clause 5).

const (
	openLen   = 13
	advertLen = 28
)

func putOpen(s *Segment, b []byte) []byte {
	b = append(b, byte(KindOpen), s.Flags)
	b = be.AppendUint16(b, uint16(1+len(s.Name)+len(s.Data)))
	b = be.AppendUint32(b, s.From)
	b = be.AppendUint32(b, s.Window)
	b = append(b, byte(len(s.Name)))
	return append(b, s.Name...)
}

// nextOpen finds the length of the name in the last byte of the fixed part, which n counts.
func nextOpen(s *Segment, tail []byte, n int) (int, error) {
	s.From, s.Window = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	name := int(tail[12])
	if n < 1+name || name > MaxServiceName || n-1-name > MaxPrivate || len(tail) < openLen+n-1 {
		return 0, ErrSegment
	}
	s.Name = tail[openLen : openLen+name]
	return n - 1, nil
}

func putAccept(s *Segment, b []byte) []byte {
	b = append(b, byte(KindAccept), 0)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	b = be.AppendUint32(b, s.Conn)
	b = be.AppendUint32(b, s.From)
	return be.AppendUint32(b, s.Window)
}

func nextAccept(s *Segment, tail []byte, n int) (int, error) {
	s.Conn, s.From, s.Window = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint32(tail[12:])
	if n > MaxPrivate {
		return 0, ErrSegment
	}
	return n, nil
}

func putRefuse(s *Segment, b []byte) []byte {
	b = append(b, byte(KindRefuse), s.Status)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	return be.AppendUint32(b, s.Conn)
}

func nextRefuse(s *Segment, tail []byte, n int) (int, error) {
	s.Status, s.Conn = tail[1], be.Uint32(tail[4:])
	if n > MaxText {
		return 0, ErrSegment
	}
	return n, nil
}

func putClose(s *Segment, b []byte) []byte {
	b = append(b, byte(KindClose), s.Status, 0, s.Flags)
	return be.AppendUint32(b, s.Conn)
}

func nextClose(s *Segment, tail []byte, n int) (int, error) {
	s.Status, s.Flags, s.Conn = tail[1], tail[3], be.Uint32(tail[4:])
	if n&^CloseUnanswered != 0 {
		return 0, ErrReserved
	}
	return 0, nil
}

func putAdvert(s *Segment, b []byte) []byte {
	b = append(b, byte(KindAdvert), s.Perm)
	b = be.AppendUint16(b, uint16(len(s.Name)))
	b = be.AppendUint32(b, s.Conn)
	b = be.AppendUint32(b, s.Op)
	b = be.AppendUint64(b, s.Key)
	b = be.AppendUint64(b, s.Size)
	return append(b, s.Name...)
}

func nextAdvert(s *Segment, tail []byte, n int) (int, error) {
	s.Perm, s.Conn, s.Op = tail[1], be.Uint32(tail[4:]), be.Uint32(tail[8:])
	s.Key, s.Size = be.Uint64(tail[12:]), be.Uint64(tail[20:])
	if s.Perm&^7 != 0 {
		return 0, ErrReserved
	}
	if n > MaxServiceName || len(tail) < advertLen+n {
		return 0, ErrSegment
	}
	s.Name = tail[advertLen : advertLen+n]
	return n, nil
}

func putWithdraw(s *Segment, b []byte) []byte {
	b = append(b, byte(KindWithdraw), 0, 0, 0)
	b = be.AppendUint32(b, s.Conn)
	b = be.AppendUint32(b, s.Op)
	return be.AppendUint64(b, s.Key)
}

func nextWithdraw(s *Segment, tail []byte, _ int) (int, error) {
	s.Conn, s.Op, s.Key = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:])
	return 0, nil
}
