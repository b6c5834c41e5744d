package ipc

import "encoding/binary"

// Completion kinds.
const (
	CQComplete uint8 = 1 // Token, Status, Conn: an operation ended
	CQNotify   uint8 = 2 // Conn, Imm, Len: a write with the notify flag was applied to our memory
)

// CQE is one completion or notification. On the ring it is 32 little-endian bytes:
//
//	0 kind | 1 status | 2 zero u16 | 4 conn u32 | 8 token u64 | 16 imm u32 | 20 length u32 | 24 zero u64
type CQE struct {
	Kind   uint8
	Status Status
	Conn   uint32
	Token  uint64
	Imm    uint32
	Len    uint32 // bytes of the write that notified, saturated at 2^32-1
}

// EncodeCQE writes e at dst, which must hold CQESize bytes.
func EncodeCQE(dst []byte, e *CQE) {
	_ = dst[CQESize-1]
	dst[0], dst[1], dst[2], dst[3] = e.Kind, uint8(e.Status), 0, 0
	binary.LittleEndian.PutUint32(dst[4:], e.Conn)
	binary.LittleEndian.PutUint64(dst[8:], e.Token)
	binary.LittleEndian.PutUint32(dst[16:], e.Imm)
	binary.LittleEndian.PutUint32(dst[20:], e.Len)
	binary.LittleEndian.PutUint64(dst[24:], 0)
}

// DecodeCQE reads an entry from src, CQESize bytes of private memory. On error e is unspecified.
func DecodeCQE(src []byte, e *CQE) error {
	_ = src[CQESize-1]
	e.Kind, e.Status = src[0], Status(src[1])
	e.Conn = binary.LittleEndian.Uint32(src[4:])
	e.Token = binary.LittleEndian.Uint64(src[8:])
	e.Imm = binary.LittleEndian.Uint32(src[16:])
	e.Len = binary.LittleEndian.Uint32(src[20:])
	if uint64(src[2])|uint64(src[3])|binary.LittleEndian.Uint64(src[24:]) != 0 {
		return ErrEntry
	}
	if e.Kind != CQComplete && (e.Kind != CQNotify || e.Status != StatusOK) {
		return ErrEntry
	}
	return nil
}
