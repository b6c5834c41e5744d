package ipc

import "encoding/binary"

// Bits of byte 2: the message has an immediate; it is about a write.
const (
	cqHasImm = 1
	cqTells  = 2
)

// CQE is one completion or notification. On the ring it is 32 little-endian bytes:
//
//	0 kind | 1 status | 2 bit 0 has immediate, bit 1 is about a write | 3 zero | 4 conn u32 | 8 token u64
//	16 imm u32 | 20 length u32 | 24 offset u64
type CQE struct {
	Kind   Completion
	Status Status
	Conn   uint32
	Token  uint64
	Imm    uint32
	Len    uint32 // bytes of the write that notified, saturated at 2^32-1, or of the message
	Off    uint64 // of its first byte, within the export; of an atomic that succeeded: what it found
	HasImm bool   // CQReceive
	Tells  bool   // CQReceive: the message is about a write (A6.18), and Len is the write's
}

// EncodeCQE writes e at dst, which must hold CQESize bytes.
func EncodeCQE(dst []byte, e *CQE) {
	_ = dst[CQESize-1]
	dst[0], dst[1], dst[2], dst[3] = uint8(e.Kind), uint8(e.Status), 0, 0
	if e.HasImm {
		dst[2] = cqHasImm
	}
	if e.Tells {
		dst[2] |= cqTells
	}
	binary.LittleEndian.PutUint32(dst[4:], e.Conn)
	binary.LittleEndian.PutUint64(dst[8:], e.Token)
	binary.LittleEndian.PutUint32(dst[16:], e.Imm)
	binary.LittleEndian.PutUint32(dst[20:], e.Len)
	binary.LittleEndian.PutUint64(dst[24:], e.Off)
}

// DecodeCQE reads an entry from src, CQESize bytes of private memory. On error e is unspecified.
func DecodeCQE(src []byte, e *CQE) error {
	_ = src[CQESize-1]
	e.Kind, e.Status = Completion(src[0]), Status(src[1])
	e.Conn = binary.LittleEndian.Uint32(src[4:])
	e.Token = binary.LittleEndian.Uint64(src[8:])
	e.Imm = binary.LittleEndian.Uint32(src[16:])
	e.Len = binary.LittleEndian.Uint32(src[20:])
	e.Off = binary.LittleEndian.Uint64(src[24:])
	e.HasImm, e.Tells = src[2]&cqHasImm != 0, src[2]&cqTells != 0
	if src[2]&^(cqHasImm|cqTells)|src[3] != 0 || e.HasImm && e.Kind != CQReceive || e.Tells && !e.HasImm {
		return ErrEntry
	}
	switch e.Kind {
	case CQComplete, CQRedirected:
		return nil
	case CQReceive:
		if e.Off == 0 {
			return nil
		}
	case CQNotify:
		if e.Status == StatusOK {
			return nil
		}
	case CQLate:
		if e.Status != StatusOK && uint64(e.Imm)|uint64(e.Len)|e.Off == 0 {
			return nil
		}
	}
	return ErrEntry
}
