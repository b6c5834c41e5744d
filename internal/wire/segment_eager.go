package wire

// Segments of composed messages (clause 18): bytes that travel ahead, what publishes them, and what drops them.

// StageBlock is the unit in which bytes are staged, and MaxStaged the longest composed message.
const (
	StageBlock = 64
	MaxStaged  = 64 << 10
)

func putStage(s *Segment, b []byte) []byte {
	b = append(b, byte(KindStage), 0)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	b = be.AppendUint32(be.AppendUint32(b, s.Conn), s.Op)
	b = be.AppendUint32(b, s.Stamp)
	return be.AppendUint32(be.AppendUint32(b, uint32(s.Place)), uint32(s.Size))
}

func nextStage(s *Segment, tail []byte, n int) (int, error) {
	s.Conn, s.Op, s.Stamp = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint32(tail[12:])
	s.Place, s.Size = uint64(be.Uint32(tail[16:])), uint64(be.Uint32(tail[20:]))
	end := s.Place + uint64(n)
	if n == 0 || s.Stamp == 0 || s.Size > MaxStaged || end > s.Size || s.Place%StageBlock != 0 ||
		end%StageBlock != 0 && end != s.Size {
		return 0, ErrReserved
	}
	return n, nil
}

func putCommit(s *Segment, b []byte) []byte {
	b = append(b, byte(KindCommit), s.Flags)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	b = putTarget(s, b)
	b = be.AppendUint32(b, s.From)
	b = be.AppendUint32(b, uint32(s.Status)<<24|uint32(s.Size))
	b = be.AppendUint32(b, s.Bytes)
	if s.Flags&SegNotify != 0 {
		b = be.AppendUint32(b, s.Imm)
	}
	return b
}

func nextCommit(s *Segment, tail []byte, n int) (int, error) {
	at := s.nextTarget(tail)
	s.From, s.Bytes = be.Uint32(tail[at:]), be.Uint32(tail[at+8:])
	of := be.Uint32(tail[at+4:])
	s.Status, s.Size = uint8(of>>24), uint64(of&(1<<24-1))
	if s.Flags&SegNotify != 0 {
		s.Imm = be.Uint32(tail[at+12:])
	}
	kind := Kind(s.Status)
	if n != 8 || s.Size == 0 || s.Size > MaxStaged || uint64(s.Bytes) > s.Size ||
		kind != KindSend && (kind != KindWrite || s.Flags&SegStrict != 0) ||
		kind == KindSend && (s.Key>>32|s.Place != 0) || s.Flags&(SegFirst|SegLast) != SegFirst|SegLast {
		return 0, ErrReserved
	}
	return n, nil
}

func putStaged(s *Segment, b []byte) []byte {
	b = append(b, byte(s.Kind), 0, 0, 0)
	return be.AppendUint32(be.AppendUint32(b, s.Conn), s.Op)
}

func nextStaged(s *Segment, tail []byte, _ int) (int, error) {
	s.Conn, s.Op = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	return 0, nil
}
