// Package wire turns frames into structs and back, clause by clause of docs/PROTOCOL.md.
//
// A data frame is laid out so that its bulk payload can be gathered from registered memory and always starts at the same place:
//
//	| Ethernet 14 | fixed header 24 | bulk header 40 | bulk payload ... | tail: small segments ... |
//	                                 '---- only with flag BULK -------'
//
// Decoding never allocates and never reads outside the frame; what it returns points into the frame.
package wire

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Lengths in bytes.
const (
	EthLen   = 14
	FixedLen = 24
	BulkLen  = 40
	// HeadLen is what precedes a bulk payload, Ethernet header included.
	HeadLen = EthLen + FixedLen + BulkLen
	// TailStart is where the tail of a frame without bulk starts.
	TailStart = EthLen + FixedLen
)

// MinFrame is the least MTU of a link: the longest set-up segment must fit in a frame (clause 9.2).
const MinFrame = 640

// Version of the protocol (clause 2.2).
const Version = 1

// EtherType is the default, IEEE 802 local experimental 1 (clause 2.1).
const EtherType = 0x88B5

// Type is the frame type (clauses 3.1 and 4).
type Type uint8

const (
	TypeData    Type = 1
	TypeHello   Type = 2
	TypeInit    Type = 3
	TypeInitAck Type = 4
	TypeReset   Type = 5
)

// Frame flags (clause 2.2).
const (
	FlagBulk       = 1 << 0
	FlagPayloadSum = 1 << 1
	FlagShuffled   = 1 << 2
	FlagPush       = 1 << 3
	flagsKnown     = FlagBulk | FlagPayloadSum | FlagShuffled | FlagPush
)

// Reasons for which a frame is dropped.
var (
	ErrShort    = errors.New("wire: frame shorter than its lengths say")
	ErrVersion  = errors.New("wire: unknown protocol version")
	ErrReserved = errors.New("wire: reserved bits or values set")
	ErrHeadSum  = errors.New("wire: header checksum mismatch")
	ErrKind     = errors.New("wire: unknown segment kind")
	ErrSegment  = errors.New("wire: malformed segment")
)

// Header is the fixed header (clause 2.2) without its checksum.
type Header struct {
	Type     Type
	KeyEpoch uint8
	Path     uint8
	Flags    uint8
	Session  uint32
	PN       uint64
	TailLen  uint16
	Shuffle  uint16 // with FlagShuffled: how many payload bytes stand behind the others
}

// Bulk is the bulk header (clause 2.3).
type Bulk struct {
	Kind  Kind
	Flags uint8 // segment flags, clause 6.2
	Len   uint16
	Conn  uint32
	Op    uint32
	Fence uint32
	Key   uint64
	Place uint64
	Imm   uint32 // with SegLast the immediate, else how many bytes of the operation follow (clause 2.3)
	Sum   uint32
}

// Frame is a decoded frame. Payload and Tail point into the bytes it was decoded from.
type Frame struct {
	Header
	Bulk    Bulk // meaningful with FlagBulk
	Payload []byte
	Tail    []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC32C of p, continuing from seed (0 to start).
func Sum(seed uint32, p []byte) uint32 { return crc32.Update(seed, castagnoli, p) }

// PutBulk writes the bulk header to b[:BulkLen].
func PutBulk(b []byte, h *Bulk) {
	_ = b[BulkLen-1]
	b[0], b[1] = byte(h.Kind), h.Flags
	binary.BigEndian.PutUint16(b[2:], h.Len)
	binary.BigEndian.PutUint32(b[4:], h.Conn)
	binary.BigEndian.PutUint32(b[8:], h.Op)
	binary.BigEndian.PutUint32(b[12:], h.Fence)
	binary.BigEndian.PutUint64(b[16:], h.Key)
	binary.BigEndian.PutUint64(b[24:], h.Place)
	binary.BigEndian.PutUint32(b[32:], h.Imm)
	binary.BigEndian.PutUint32(b[36:], h.Sum)
}

// Finish writes the fixed header to b[:FixedLen] and its checksum over b (fixed and, if present, bulk header) and tail.
// With FlagBulk, b must already hold the bulk header at b[FixedLen:FixedLen+BulkLen].
func Finish(b []byte, h *Header, tail []byte) {
	_ = b[FixedLen-1]
	b[0], b[1], b[2], b[3] = Version<<4|byte(h.Type), h.KeyEpoch, h.Path, h.Flags
	binary.BigEndian.PutUint32(b[4:], h.Session)
	binary.BigEndian.PutUint64(b[8:], h.PN)
	binary.BigEndian.PutUint16(b[20:], uint16(len(tail)))
	binary.BigEndian.PutUint16(b[22:], h.Shuffle)
	binary.BigEndian.PutUint32(b[16:], headSum(b, h.Flags, tail))
}

func headSum(b []byte, flags uint8, tail []byte) uint32 {
	end := FixedLen
	if flags&FlagBulk != 0 {
		end += BulkLen
	}
	s := Sum(0, b[:16])
	s = Sum(s, b[20:end])
	return Sum(s, tail)
}

// Decode reads b, the frame after its Ethernet header, into f and verifies the header checksum. The payload checksum is left to
// CheckPayload, which the caller runs once the frame is known to be wanted.
func (f *Frame) Decode(b []byte) error {
	if len(b) < FixedLen {
		return ErrShort
	}
	if err := f.decodeFixed(b); err != nil {
		return err
	}
	rest := b[FixedLen:]
	f.Payload = nil
	if f.Flags&FlagBulk != 0 {
		if len(rest) < BulkLen {
			return ErrShort
		}
		f.Bulk.decode(rest)
		rest = rest[BulkLen:]
		if len(rest) < int(f.Bulk.Len) {
			return ErrShort
		}
		f.Payload, rest = rest[:f.Bulk.Len], rest[f.Bulk.Len:]
	}
	return f.finishDecode(b, rest)
}

// DecodeParts is Decode of a frame with bulk that arrived in pieces: head holds the fixed and bulk headers, payload exactly the bulk payload,
// rest what follows it. It returns ErrShort, and f is undefined, if the frame has no bulk or its payload has another length.
func (f *Frame) DecodeParts(head, payload, rest []byte) error {
	if len(head) != FixedLen+BulkLen || head[3]&FlagBulk == 0 || int(binary.BigEndian.Uint16(head[FixedLen+2:])) != len(payload) {
		return ErrShort
	}
	if err := f.decodeFixed(head); err != nil {
		return err
	}
	f.Bulk.decode(head[FixedLen:])
	f.Payload = payload
	return f.finishDecode(head, rest)
}

// finishDecode finds the tail at the start of rest and verifies what is known so far. b starts with the headers.
func (f *Frame) finishDecode(b, rest []byte) error {
	if len(rest) < int(f.TailLen) {
		return ErrShort
	}
	f.Tail = rest[:f.TailLen]
	if binary.BigEndian.Uint32(b[16:]) != headSum(b, f.Flags, f.Tail) {
		return ErrHeadSum
	}
	if f.Flags&FlagBulk != 0 && (f.Bulk.Kind != KindWrite && f.Bulk.Kind != KindReadData || f.Bulk.Flags&^uint8(segFlagsKnown) != 0) {
		return ErrReserved
	}
	return nil
}

func (f *Frame) decodeFixed(b []byte) error {
	if b[0]>>4 != Version {
		return ErrVersion
	}
	f.Type, f.KeyEpoch, f.Path, f.Flags = Type(b[0]&15), b[1], b[2], b[3]
	f.Session = binary.BigEndian.Uint32(b[4:])
	f.PN = binary.BigEndian.Uint64(b[8:])
	f.TailLen = binary.BigEndian.Uint16(b[20:])
	f.Shuffle = binary.BigEndian.Uint16(b[22:])
	if f.Flags&^uint8(flagsKnown) != 0 || (f.Flags&FlagShuffled != 0) != (f.Shuffle != 0) || f.Path > 63 || f.KeyEpoch != 0 {
		return ErrReserved
	}
	return nil
}

func (h *Bulk) decode(b []byte) {
	_ = b[BulkLen-1]
	h.Kind, h.Flags = Kind(b[0]), b[1]
	h.Len = binary.BigEndian.Uint16(b[2:])
	h.Conn = binary.BigEndian.Uint32(b[4:])
	h.Op = binary.BigEndian.Uint32(b[8:])
	h.Fence = binary.BigEndian.Uint32(b[12:])
	h.Key = binary.BigEndian.Uint64(b[16:])
	h.Place = binary.BigEndian.Uint64(b[24:])
	h.Imm = binary.BigEndian.Uint32(b[32:])
	h.Sum = binary.BigEndian.Uint32(b[36:])
}

// PeekBulk reads the bulk header of b, at least the fixed and bulk headers of a frame, and reports whether there is one. Nothing is verified.
func PeekBulk(b []byte, h *Bulk) bool {
	if b[3]&FlagBulk == 0 {
		return false
	}
	h.decode(b[FixedLen:])
	return true
}

// PayloadIntact verifies the payload checksum where the frame carries one (clause 2.5).
func (f *Frame) PayloadIntact() bool {
	return f.Flags&(FlagBulk|FlagPayloadSum) != FlagBulk|FlagPayloadSum || Sum(0, f.Payload) == f.Bulk.Sum
}
