package ipc

import (
	"encoding/binary"
	"errors"
)

// Piece is a range of local memory.
type Piece struct {
	Region uint32
	Len    uint32
	Off    uint64 // within the region
}

// ErrEntry is returned for a ring entry that no correct peer writes. The peer must be disconnected.
var ErrEntry = errors.New("ipc: malformed ring entry")

// SQE is one submission. On the ring it is 64 little-endian bytes:
//
//	0 op | 1 flags | 2 inline length | 3 zero | 4 conn u32 | 8 imm u32 | 12 zero u32 | 16 token u64
//	24 key u64 | 32 remote offset u64
//	40 region u32 | 44 zero u32 | 48 local offset u64 | 56 length u64      when the inline length is zero
//	40 24 bytes of data                                                    otherwise
//
// and with OpPieces 0 op | 1 zero | 2 pieces | 3 zero | 4 conn u32 | 8 zero u64, then for each of three pieces
//
//	16 region u32 | length u32 | offset u64
//
// and with OpBytes 0 op | 1 zero | 2 bytes | 3 zero | 4 conn u32 | 8 56 bytes of data, zero beyond their number.
type SQE struct {
	Op        Op
	Flags     Flags
	InlineLen uint8 // 1..24: a write of Inline[:InlineLen]; Region, LocalOff and Len are then zero
	Conn      uint32
	Imm       uint32
	Region    uint32
	Token     uint64 // returned in the completion; the daemon does not interpret it
	Key       uint64
	RemoteOff uint64
	LocalOff  uint64
	Len       uint64
	Inline    [BytesPerEntry]byte   // of which only OpBytes has more than MaxInline
	Pieces    [PiecesPerEntry]Piece // of OpPieces, the first InlineLen; for no other has it a meaning
}

// EncodeSQE writes e at dst, which must hold SQESize bytes.
func EncodeSQE(dst []byte, e *SQE) {
	_ = dst[SQESize-1]
	dst[0], dst[1], dst[2], dst[3] = uint8(e.Op), uint8(e.Flags), e.InlineLen, 0
	switch e.Op {
	case OpPieces:
		encodePieces(dst, e)
		return
	case OpBytes:
		binary.LittleEndian.PutUint32(dst[4:], e.Conn)
		copy(dst[8:SQESize], e.Inline[:])
		return
	}
	binary.LittleEndian.PutUint32(dst[4:], e.Conn)
	binary.LittleEndian.PutUint32(dst[8:], e.Imm)
	binary.LittleEndian.PutUint32(dst[12:], 0)
	binary.LittleEndian.PutUint64(dst[16:], e.Token)
	binary.LittleEndian.PutUint64(dst[24:], e.Key)
	binary.LittleEndian.PutUint64(dst[32:], e.RemoteOff)
	if e.InlineLen != 0 {
		copy(dst[40:SQESize], e.Inline[:])
		return
	}
	binary.LittleEndian.PutUint32(dst[40:], e.Region)
	binary.LittleEndian.PutUint32(dst[44:], 0)
	binary.LittleEndian.PutUint64(dst[48:], e.LocalOff)
	binary.LittleEndian.PutUint64(dst[56:], e.Len)
}

// DecodeSQE reads an entry from src, SQESize bytes of private memory, and checks everything that can be checked without
// knowing the client: operation, flags, inline length, reserved bytes, sums that wrap. On error e is unspecified.
func DecodeSQE(src []byte, e *SQE) error {
	_ = src[SQESize-1]
	e.Op, e.Flags, e.InlineLen = Op(src[0]), Flags(src[1]), src[2]
	switch e.Op {
	case OpPieces:
		return decodePieces(src, e)
	case OpBytes:
		return decodeBytes(src, e)
	}
	e.Conn = binary.LittleEndian.Uint32(src[4:])
	e.Imm = binary.LittleEndian.Uint32(src[8:])
	e.Token = binary.LittleEndian.Uint64(src[16:])
	e.Key = binary.LittleEndian.Uint64(src[24:])
	e.RemoteOff = binary.LittleEndian.Uint64(src[32:])
	reserved := uint32(src[3]) | binary.LittleEndian.Uint32(src[12:])
	if e.InlineLen != 0 {
		e.Region, e.LocalOff, e.Len = 0, 0, 0
		copy(e.Inline[:], src[40:SQESize])
		clear(e.Inline[MaxInline:])
	} else {
		e.Region = binary.LittleEndian.Uint32(src[40:])
		reserved |= binary.LittleEndian.Uint32(src[44:])
		e.LocalOff = binary.LittleEndian.Uint64(src[48:])
		e.Len = binary.LittleEndian.Uint64(src[56:])
		clear(e.Inline[:])
	}
	if reserved != 0 {
		return ErrEntry
	}
	return e.check()
}

func (e *SQE) check() error {
	switch {
	case e.Op == OpCredit:
		if uint8(e.Flags)|e.InlineLen != 0 || e.Imm == 0 || e.Imm > NotifyCredit {
			return ErrEntry
		}
		return nil
	case e.Op == OpAtomic:
		return e.checkAtomic()
	case e.Op == OpRedirect, e.Op == OpEndRedirect:
		return e.checkRedirect()
	case e.Op >= OpCompose && e.Op <= OpDiscard:
		return e.checkEager()
	case e.Op == OpAim:
		return e.checkAim()
	case e.Op == OpResume:
		return e.checkResume()
	case e.Op == OpReceive && (uint8(e.Flags)|e.InlineLen != 0 || e.Imm != 0 || e.RemoteOff != 0 || e.Key > 1<<32-1 ||
		(e.Conn == 0) == (e.Key == 0)):
		return ErrEntry
	case e.Op == OpSend && (e.Flags&FlagLocal != 0 || e.Key != 0):
		return ErrEntry
	case e.Op == OpTell:
		return e.checkTell()
	case e.Op != OpWrite && e.Op != OpRead && e.Op != OpSend && e.Op != OpReceive, e.Flags&^FlagsAll != 0,
		e.InlineLen > MaxInline:
		return ErrEntry
	case e.Op == OpRead && (e.InlineLen != 0 || e.Flags&(FlagNotify|FlagLocal) != 0):
		return ErrEntry
	case e.LocalOff+e.Len < e.LocalOff:
		return ErrEntry
	}
	return nil
}

// checkTell is check for OpTell: Len is of the write that the message is about.
func (e *SQE) checkTell() error {
	want := SQE{Op: e.Op, Flags: e.Flags&(FlagBackwardFence|FlagForwardFence) | FlagNotify, Conn: e.Conn, Imm: e.Imm,
		Token: e.Token, RemoteOff: e.RemoteOff, Len: e.Len, Pieces: e.Pieces}
	if *e != want || e.Len > MaxSend {
		return ErrEntry
	}
	return nil
}

// checkRedirect is check for OpRedirect and OpEndRedirect.
func (e *SQE) checkRedirect() error {
	bad := uint32(e.Flags)|uint32(e.InlineLen)|e.Imm != 0 || e.Len == 0 || e.LocalOff+e.Len < e.LocalOff
	if e.Op == OpEndRedirect {
		bad = *e != (SQE{Op: e.Op, Conn: e.Conn, Token: e.Token})
	}
	if bad {
		return ErrEntry
	}
	return nil
}
