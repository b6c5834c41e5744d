package ipc

import "encoding/binary"

// Submissions that belong to features: atomics, and what precedes an operation: its local memory in pieces, its bytes.

// Of an atomic Inline has the function, its size in bytes, six zeros, the operand, and what AtomicCAS compares with.
const (
	atomicOperand = 8
	atomicCompare = 16
)

// SetAtomic makes e an atomic of that function on size bytes.
func (e *SQE) SetAtomic(f AtomicFunc, size int, operand, compare uint64) {
	e.Op, e.InlineLen, e.Region, e.LocalOff, e.Len = OpAtomic, MaxInline, 0, 0, 0
	e.Inline = [BytesPerEntry]byte{byte(f), byte(size)}
	binary.LittleEndian.PutUint64(e.Inline[atomicOperand:], operand)
	binary.LittleEndian.PutUint64(e.Inline[atomicCompare:], compare)
}

// AtomicSize is how many bytes of remote memory an atomic changes, 4 or 8.
func (e *SQE) AtomicSize() uint64 { return uint64(e.Inline[1]) }

func (e *SQE) checkAtomic() error {
	f := AtomicFunc(e.Inline[0])
	zeros := binary.LittleEndian.Uint64(e.Inline[:]) >> 16
	if f != AtomicCAS {
		zeros |= binary.LittleEndian.Uint64(e.Inline[atomicCompare:])
	}
	size := e.AtomicSize()
	if e.Flags&^(FlagsAll&^FlagLocal) != 0 || e.InlineLen != MaxInline || zeros != 0 || !f.Known() ||
		size != 4 && size != 8 {
		return ErrEntry
	}
	return nil
}

// checkEager is check for the operations of FeatureEager: of each what it does not use is zero.
func (e *SQE) checkEager() error {
	want := SQE{Op: e.Op, Conn: e.Conn, Token: e.Token, LocalOff: e.LocalOff, Len: e.Len}
	bad := e.LocalOff+e.Len < e.LocalOff
	switch e.Op {
	case OpCompose:
		want.Region, want.Key, want.RemoteOff = e.Region, e.Key, e.RemoteOff
	case OpCommit:
		want.Flags, want.Imm, want.LocalOff = e.Flags&^FlagLocal, e.Imm, 0
		bad = bad || e.Flags&^FlagsAll != 0
	case OpDiscard:
		want.LocalOff, want.Len = 0, 0
	}
	want.Pieces = e.Pieces
	if bad || *e != want {
		return ErrEntry
	}
	return nil
}

// checkAim is check for OpAim: Imm is a word's number, or 0 for the doorbell.
func (e *SQE) checkAim() error {
	if *e != (SQE{Op: e.Op, Conn: e.Conn, Imm: e.Imm, Pieces: e.Pieces}) || e.Imm > Words {
		return ErrEntry
	}
	return nil
}

// checkResume is check for OpResume, which names a connection and nothing else.
func (e *SQE) checkResume() error {
	if *e != (SQE{Op: e.Op, Conn: e.Conn, Pieces: e.Pieces}) {
		return ErrEntry
	}
	return nil
}

func encodePieces(dst []byte, e *SQE) {
	binary.LittleEndian.PutUint32(dst[4:], e.Conn)
	clear(dst[8:SQESize])
	for i := range e.Pieces[:e.InlineLen] {
		p, at := &e.Pieces[i], dst[16+16*i:]
		binary.LittleEndian.PutUint32(at, p.Region)
		binary.LittleEndian.PutUint32(at[4:], p.Len)
		binary.LittleEndian.PutUint64(at[8:], p.Off)
	}
}

func decodePieces(src []byte, e *SQE) error {
	*e = SQE{Op: OpPieces, InlineLen: e.InlineLen, Conn: binary.LittleEndian.Uint32(src[4:])}
	n := int(e.InlineLen)
	reserved := uint64(src[1]) | uint64(src[3]) | binary.LittleEndian.Uint64(src[8:])
	if n == 0 || n > PiecesPerEntry {
		return ErrEntry
	}
	for i := range e.Pieces {
		at := src[16+16*i:]
		p := Piece{Region: binary.LittleEndian.Uint32(at), Len: binary.LittleEndian.Uint32(at[4:]),
			Off: binary.LittleEndian.Uint64(at[8:])}
		if i < n {
			e.Pieces[i] = p
		} else if p != (Piece{}) {
			return ErrEntry
		}
		if p.Off+uint64(p.Len) < p.Off {
			return ErrEntry
		}
	}
	if reserved != 0 {
		return ErrEntry
	}
	return nil
}

func decodeBytes(src []byte, e *SQE) error {
	*e = SQE{Op: OpBytes, InlineLen: e.InlineLen, Conn: binary.LittleEndian.Uint32(src[4:])}
	n := int(e.InlineLen)
	if n == 0 || n > BytesPerEntry || src[1]|src[3] != 0 {
		return ErrEntry
	}
	copy(e.Inline[:], src[8:SQESize])
	for _, b := range e.Inline[n:] {
		if b != 0 {
			return ErrEntry
		}
	}
	return nil
}
