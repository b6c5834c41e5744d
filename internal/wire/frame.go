// Package wire turns frames into structs and back, clause by clause of docs/PROTOCOL.md.
//
// A data frame is laid out so that its bulk payload can be gathered from registered memory and always starts at the
// same place:
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
	// PadLen is the length of a segment Pad without bytes.
	PadLen = 4
)

// ClearLen is the part of the fixed header that is readable in a sealed frame; TagLen is what sealing adds behind the
// tail (clause 2.2).
const (
	ClearLen = 16
	TagLen   = 16
	// SplitLen is what sealing a payload apart from the rest adds beyond one tag.
	SplitLen = 2 + TagLen
)

// MinSealed is the least length of a sealed frame, Ethernet header included: Ethernet pads shorter ones, and a tag
// cannot be told from padding (clause 10.5).
const MinSealed = 64

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
	TypeRetry   Type = 6
	TypeCrypto  Type = 7
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
	// Words: the checksum reads words, and would wait for all the parts of one that was just written in parts.
	binary.BigEndian.PutUint64(b, uint64(h.Kind)<<56|uint64(h.Flags)<<48|uint64(h.Len)<<32|uint64(h.Conn))
	binary.BigEndian.PutUint64(b[8:], uint64(h.Op)<<32|uint64(h.Fence))
	binary.BigEndian.PutUint64(b[16:], h.Key)
	binary.BigEndian.PutUint64(b[24:], h.Place)
	binary.BigEndian.PutUint64(b[32:], uint64(h.Imm)<<32|uint64(h.Sum))
}

// Finish writes the fixed header to b[:FixedLen] and its checksum over b (fixed and, if present, bulk header) and tail.
// With FlagBulk, b must already hold the bulk header at b[FixedLen:FixedLen+BulkLen].
func Finish(b []byte, h *Header, tail []byte) {
	FinishOpen(b, h, tail)
	binary.BigEndian.PutUint32(b[16:], headSum(b, h.Flags, tail))
}

// FinishOpen is Finish of a frame that is about to be sealed: it carries no checksum.
func FinishOpen(b []byte, h *Header, tail []byte) {
	_ = b[FixedLen-1]
	binary.BigEndian.PutUint64(b, h.clear())
	binary.BigEndian.PutUint64(b[8:], h.PN)
	binary.BigEndian.PutUint32(b[16:], 0)
	binary.BigEndian.PutUint32(b[20:], uint32(uint16(len(tail)))<<16|uint32(h.Shuffle))
}

// clear is bytes 0 to 7 of the header: what all frames of a kind on one path of a session begin with.
func (h *Header) clear() uint64 {
	return uint64(Version<<4|h.Type)<<56 | uint64(h.KeyEpoch)<<48 | uint64(h.Path)<<40 | uint64(h.Flags)<<32 |
		uint64(h.Session)
}

func headSum(b []byte, flags uint8, tail []byte) uint32 {
	end := FixedLen
	if flags&FlagBulk != 0 {
		end += BulkLen
		if len(tail) == 0 {
			return bulkSum(b)
		}
	}
	s := Sum(0, b[:16])
	if n := end + len(tail); len(tail) > 0 && n <= len(b) && &b[end] == &tail[0] {
		return Sum(s, b[20:n]) // they lie in one piece: a call for each costs more than a short one's sum
	}
	s = Sum(s, b[20:end])
	return Sum(s, tail)
}

// bulkSum is headSum of a frame with bulk and without a tail. Most frames are such, and to call the general function
// twice costs more than so few bytes do.
func bulkSum(b []byte) uint32 {
	b = b[:FixedLen+BulkLen]
	if sumsHeaders {
		return sumHeaders(&b[0])
	}
	return Sum(Sum(0, b[:16]), b[20:])
}

// Decode reads b, the frame after its Ethernet header, into f and verifies the header checksum. The payload checksum is
// left to CheckPayload, which the caller runs once the frame is known to be wanted.
func (f *Frame) Decode(b []byte) error {
	rest, err := f.decodeHeaders(b)
	if err != nil {
		return err
	}
	if f.KeyEpoch != 0 {
		return ErrReserved
	}
	return f.finishDecode(b, rest)
}

// Peek reads what there is of a frame of which b is the beginning, after its Ethernet header: of a sealed one the clear
// part, else the headers, and as much of the payload and the tail as b holds. It verifies no checksum, and only what it
// needs is checked.
func (f *Frame) Peek(b []byte) error {
	*f = Frame{}
	if len(b) < ClearLen {
		return ErrShort
	}
	if Sealed(b) {
		return f.decodeClear(b)
	}
	if len(b) < FixedLen {
		return ErrShort
	}
	if err := f.decodeFixed(b); err != nil {
		return err
	}
	rest := b[FixedLen:]
	if f.Flags&FlagBulk != 0 {
		if len(rest) < BulkLen {
			return ErrShort
		}
		f.Bulk.decode(rest)
		rest = rest[BulkLen:]
		n := min(len(rest), int(f.Bulk.Len))
		f.Payload, rest = rest[:n], rest[n:]
	}
	f.Tail = rest[:min(len(rest), int(f.TailLen))]
	return nil
}

// Sealed reports whether b, the frame after its Ethernet header, is sealed: DecodeClear and, once it is opened,
// DecodeOpened are for it, and Decode is not.
func Sealed(b []byte) bool { return len(b) >= ClearLen && b[1] != 0 }

// DecodeClear reads the clear part of a sealed frame: nothing in it is authentic before the frame is opened.
func (h *Header) DecodeClear(b []byte) error {
	if len(b) < FixedLen+TagLen {
		return ErrShort
	}
	if err := h.decodeClear(b); err != nil {
		return err
	}
	if h.KeyEpoch == 0 {
		return ErrReserved
	}
	return nil
}

// DecodeOpened reads b, a frame that was sealed and is opened, after its Ethernet header. It is authentic, so no sum is
// verified.
func (f *Frame) DecodeOpened(b []byte) error {
	rest, err := f.decodeHeaders(b)
	if err != nil {
		return err
	}
	if f.KeyEpoch == 0 || f.Flags&(FlagPayloadSum|FlagShuffled) != 0 || binary.BigEndian.Uint32(b[16:]) != 0 {
		return ErrReserved
	}
	return f.splitTail(rest)
}

// decodeHeaders reads the headers and finds the payload, and returns what follows it.
func (f *Frame) decodeHeaders(b []byte) (rest []byte, err error) {
	if len(b) < FixedLen {
		return nil, ErrShort
	}
	if err := f.decodeFixed(b); err != nil {
		return nil, err
	}
	rest = b[FixedLen:]
	f.Payload = nil
	if f.Flags&FlagBulk != 0 {
		if len(rest) < BulkLen {
			return nil, ErrShort
		}
		f.Bulk.decode(rest)
		rest = rest[BulkLen:]
		if len(rest) < int(f.Bulk.Len) {
			return nil, ErrShort
		}
		f.Payload, rest = rest[:f.Bulk.Len], rest[f.Bulk.Len:]
	}
	return rest, nil
}

// DecodeParts is Decode of a frame with bulk that arrived in pieces: head holds the fixed and bulk headers, payload
// exactly the bulk payload, rest what follows it. It returns ErrShort, and f is undefined, if the frame has no bulk or
// its payload has another length.
func (f *Frame) DecodeParts(head, payload, rest []byte) error {
	if len(head) != FixedLen+BulkLen || head[3]&FlagBulk == 0 || int(binary.BigEndian.Uint16(head[FixedLen+2:])) != len(
		payload) {
		return ErrShort
	}
	if err := f.decodeFixed(head); err != nil {
		return err
	}
	if f.KeyEpoch != 0 {
		return ErrReserved
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
	if binary.BigEndian.Uint32(b[16:]) != headSum(b, f.Flags, rest[:f.TailLen]) {
		return ErrHeadSum
	}
	return f.splitTail(rest)
}

func (f *Frame) splitTail(rest []byte) error {
	if len(rest) < int(f.TailLen) {
		return ErrShort
	}
	f.Tail = rest[:f.TailLen]
	if f.Flags&FlagBulk != 0 && (f.Bulk.Kind >= MaxKinds || !Layouts[f.Bulk.Kind].Bulk ||
		f.Bulk.Flags&Layouts[f.Bulk.Kind].Reserved != 0) {
		return ErrReserved
	}
	return nil
}

func (f *Frame) decodeFixed(b []byte) error {
	if err := f.decodeClear(b); err != nil {
		return err
	}
	f.TailLen = binary.BigEndian.Uint16(b[20:])
	f.Shuffle = binary.BigEndian.Uint16(b[22:])
	if (f.Flags&FlagShuffled != 0) != (f.Shuffle != 0) {
		return ErrReserved
	}
	return nil
}

func (h *Header) decodeClear(b []byte) error {
	if b[0]>>4 != Version {
		return ErrVersion
	}
	h.Type, h.KeyEpoch, h.Path, h.Flags = Type(b[0]&15), b[1], b[2], b[3]
	h.Session = binary.BigEndian.Uint32(b[4:])
	h.PN = binary.BigEndian.Uint64(b[8:])
	if h.Flags&^uint8(flagsKnown) != 0 || h.Path > 63 {
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

// PeekBulk reads the bulk header of b, at least the fixed and bulk headers of a frame, and reports whether there is
// one. Nothing is verified.
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
