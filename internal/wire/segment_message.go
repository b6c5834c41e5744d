package wire

// Segments of messages (clause 14): what a Send carries, what a Tell says of a write, the credit that the receiver
// gives, and what asks for some.

const sendNextLen = 4

func putSend(s *Segment, b []byte) []byte { return putMessage(s, b, KindSend, uint32(s.Place)) }

func nextSend(s *Segment, tail []byte, n int) (int, error) {
	s.Place = uint64(s.nextMessage(tail))
	return n, nil
}

// putMessage appends everything of a Send or Tell but Data; last is the field that differs.
func putMessage(s *Segment, b []byte, k Kind, last uint32) []byte {
	b = append(b, byte(k), s.Flags)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	b = be.AppendUint32(b, s.Conn)
	b = be.AppendUint32(b, s.Op)
	if s.Flags&SegFenced != 0 {
		b = be.AppendUint32(b, s.Fence)
	}
	b = be.AppendUint32(b, uint32(s.Key))
	b = be.AppendUint32(b, last)
	if s.Flags&SegNotify != 0 {
		b = be.AppendUint32(b, s.Imm)
	}
	return b
}

// nextMessage decodes what putMessage appended, and returns last.
func (s *Segment) nextMessage(tail []byte) (last uint32) {
	s.Conn, s.Op = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	at := 12
	if s.Flags&SegFenced != 0 {
		s.Fence = be.Uint32(tail[at:])
		at += 4
	}
	s.Key = uint64(be.Uint32(tail[at:]))
	if s.Flags&SegNotify != 0 {
		s.Imm = be.Uint32(tail[at+8:])
	}
	return be.Uint32(tail[at+4:])
}

// A Tell is whole, and has an immediate.

func putTell(s *Segment, b []byte) []byte { return putMessage(s, b, KindTell, uint32(s.Size)) }

func nextTell(s *Segment, tail []byte, n int) (int, error) {
	const must = SegFirst | SegLast | SegNotify
	s.Size = uint64(s.nextMessage(tail))
	if s.Flags&must != must {
		return 0, ErrSegment
	}
	return n, nil
}

// SendNext is a whole Send of the connection and fence of the one before it in the frame, with the next numbers.

func putSendNext(s *Segment, b []byte) []byte {
	b = append(b, byte(KindSendNext), s.Flags)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	if s.Flags&SegNotify != 0 {
		b = be.AppendUint32(b, s.Imm)
	}
	return b
}

// nextSendNext is all of Next for a SendNext, as nextWriteNext is for a WriteNext.
func (s *Segment) nextSendNext(tail []byte) (rest []byte, err error) {
	flags, n := tail[1], sendNextLen
	if s.Kind != KindSend && s.Kind != KindSendNext || flags&sendReserved != 0 ||
		flags&(SegFirst|SegLast) != SegFirst|SegLast {
		return nil, ErrSegment
	}
	s.Kind, s.Flags = KindSendNext, flags
	s.Op++
	s.Key, s.Place = uint64(uint32(s.Key)+1), 0
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

func putCredit(s *Segment, b []byte) []byte {
	b = append(b, byte(KindCredit), s.Flags, 0, 0)
	return be.AppendUint32(be.AppendUint32(b, s.Conn), s.Limit)
}

func nextCredit(s *Segment, tail []byte, _ int) (int, error) {
	s.Conn, s.Limit = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	return 0, nil
}

func putWant(s *Segment, b []byte) []byte {
	b = append(b, byte(KindWant), 0, 0, 0)
	return be.AppendUint32(be.AppendUint32(b, s.Conn), uint32(s.Key))
}

func nextWant(s *Segment, tail []byte, _ int) (int, error) {
	s.Conn, s.Key = be.Uint32(tail[4:]), uint64(be.Uint32(tail[8:]))
	return 0, nil
}
