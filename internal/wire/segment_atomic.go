package wire

// Segments of atomics (clause 13), and what they can do.

const (
	KindAtomic       Kind = 19
	KindAtomicResult Kind = 20
)

func init() {
	Layouts[KindAtomic] = Layout{Fixed: 32, Reserved: reserved, Optional: SegFenced | SegNotify, Put: putAtomic,
		Next: nextAtomic}
	Layouts[KindAtomicResult] = Layout{Fixed: 12, Reserved: 0xff, Put: putAtomicResult, Next: nextAtomicResult}
}

// AtomicOK reports whether there is an atomic of that function on so many bytes.
func AtomicOK(f AtomicFunc, size int) bool {
	return f.Known() && (size == 4 || size == 8)
}

// AtomicSize packs function and size for Segment.Size.
func AtomicSize(f AtomicFunc, size int) uint64 { return uint64(f)<<8 | uint64(size) }

// UnpackAtomic is the inverse of AtomicSize.
func UnpackAtomic(s uint64) (f AtomicFunc, size int) { return AtomicFunc(s >> 8), int(s & 0xff) }

// AtomicWord is the length of an operand, and of a result, in bytes.
const AtomicWord = 8

func putAtomic(s *Segment, b []byte) []byte {
	b = append(b, byte(KindAtomic), s.Flags)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	b = putTarget(s, b)
	b = be.AppendUint32(b, uint32(s.Size)<<16)
	if s.Flags&SegNotify != 0 {
		b = be.AppendUint32(b, s.Imm)
	}
	return b
}

func nextAtomic(s *Segment, tail []byte, n int) (int, error) {
	at := s.nextTarget(tail)
	packed := be.Uint32(tail[at:])
	s.Size = uint64(packed >> 16)
	f, size := UnpackAtomic(s.Size)
	operands := AtomicWord
	if f == AtomicCAS {
		operands *= 2
	}
	if packed&0xffff != 0 || n != operands || !AtomicOK(f, size) {
		return 0, ErrReserved
	}
	if s.Flags&SegNotify != 0 {
		s.Imm = be.Uint32(tail[at+4:])
	}
	return n, nil
}

func putAtomicResult(s *Segment, b []byte) []byte {
	b = append(b, byte(KindAtomicResult), 0)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	return be.AppendUint32(be.AppendUint32(b, s.Conn), s.Op)
}

func nextAtomicResult(s *Segment, tail []byte, n int) (int, error) {
	s.Conn, s.Op = be.Uint32(tail[4:]), be.Uint32(tail[8:])
	if n != AtomicWord {
		return 0, ErrReserved
	}
	return n, nil
}
