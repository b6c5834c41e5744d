package wire

import "encoding/binary"

// Kind is the kind of a segment (clause 3.4).
type Kind uint8

const (
	KindPad Kind = iota
	KindWrite
	KindWriteNext
	KindReadRequest
	KindReadData
	KindOpAck
	KindOpNak
	KindAck
	KindOpen
	KindAccept
	KindRefuse
	KindClose
	KindAdvert
	KindWithdraw
	KindPing
	KindProbe
	KindEcho
	KindLink
)

// Segment flags (clause 6.2).
const (
	SegFirst = 1 << iota
	SegLast
	SegBackward
	SegForward
	SegNotify
	SegFenced
	segFlagsKnown = 1<<iota - 1
)

// Flags of other segments.
const (
	AckNack         = 1 << 0 // clause 3.4, Ack
	OpenOrdered     = 1 << 0 // clause 5.3, Open
	CloseUnanswered = 1 << 0 // clause 5.4, Close
)

// Limits of variable parts, in bytes or words.
const (
	MaxWords       = 255
	MaxServiceName = 64
	MaxNodeName    = 64
	MaxPrivate     = 512
	MaxText        = 512
)

// Segment is one decoded tail segment: the union of all kinds. Which fields have a meaning, clause 3.4 says.
type Segment struct {
	Kind   Kind
	Flags  uint8
	Path   uint8 // Ack
	Status uint8 // OpNak, Refuse, Close
	Perm   uint8 // Advert
	Conn   uint32
	From   uint32 // Open, Accept: the sender's connection number
	Op     uint32 // OpAck: base; Advert, Withdraw: number
	Fence  uint32
	Limit  uint32 // OpAck: limit; Open, Accept: window
	Imm    uint32
	Delay  uint32 // Ack, nanoseconds
	Key    uint64
	Place  uint64 // Ack: floor; Probe, Echo: nonce
	Size   uint64 // ReadRequest: length; Advert: size; Ack: largest
	Name   []byte // Open: service; Advert: name
	Data   []byte // payload, private data, text; Ack and OpAck: bitmap words; Link: a LinkInfo
}

// Word returns word i of the bitmap in Data.
func (s *Segment) Word(i int) uint64 { return binary.BigEndian.Uint64(s.Data[8*i:]) }

// Words is the number of bitmap words in Data.
func (s *Segment) Words() int { return len(s.Data) / 8 }

// Lengths of segments without their variable part.
const (
	padLen         = 4
	writeLen       = 28
	writeNextLen   = 12
	readRequestLen = 36
	readDataLen    = 20
	opAckLen       = 16
	opNakLen       = 12
	ackLen         = 24
	openLen        = 13
	acceptLen      = 16
	refuseLen      = 8
	closeLen       = 8
	advertLen      = 28
	withdrawLen    = 20
	pingLen        = 4
	probeLen       = 12
	linkLen        = 1 + LinkInfoLen
)

// fixedLen is the length of a segment before its optional and variable parts; 0 for an unknown kind.
var fixedLen = [...]int{
	KindPad: padLen, KindWrite: writeLen, KindWriteNext: writeNextLen, KindReadRequest: readRequestLen, KindReadData: readDataLen,
	KindOpAck: opAckLen, KindOpNak: opNakLen, KindAck: ackLen, KindOpen: openLen, KindAccept: acceptLen, KindRefuse: refuseLen,
	KindClose: closeLen, KindAdvert: advertLen, KindWithdraw: withdrawLen, KindPing: pingLen, KindProbe: probeLen, KindEcho: probeLen,
	KindLink: linkLen,
}

// Len returns the encoded length of s in bytes.
func (s *Segment) Len() int {
	if s.Kind == KindLink {
		return linkLen
	}
	n := fixedLen[s.Kind] + len(s.Data)
	switch s.Kind {
	case KindWrite, KindReadRequest:
		n += optional(s.Flags)
	case KindWriteNext:
		n += optional(s.Flags & SegNotify)
	case KindOpen, KindAdvert:
		n += len(s.Name)
	}
	return n
}

func optional(flags uint8) (n int) {
	if flags&SegFenced != 0 {
		n += 4
	}
	if flags&SegNotify != 0 {
		n += 4
	}
	return n
}

// AppendTo appends the encoding of s to b. The caller keeps variable parts within their limits.
func (s *Segment) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	switch s.Kind {
	case KindPad:
		b = append(b, byte(s.Kind), 0)
		b = be.AppendUint16(b, uint16(len(s.Data)))
	case KindWrite:
		b = append(b, byte(s.Kind), s.Flags)
		b = be.AppendUint16(b, uint16(len(s.Data)))
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
		if s.Flags&SegFenced != 0 {
			b = be.AppendUint32(b, s.Fence)
		}
		b = be.AppendUint64(b, s.Key)
		b = be.AppendUint64(b, s.Place)
		if s.Flags&SegNotify != 0 {
			b = be.AppendUint32(b, s.Imm)
		}
	case KindWriteNext:
		b = append(b, byte(s.Kind), s.Flags)
		b = be.AppendUint16(b, uint16(len(s.Data)))
		b = be.AppendUint64(b, s.Place)
		if s.Flags&SegNotify != 0 {
			b = be.AppendUint32(b, s.Imm)
		}
	case KindReadRequest:
		b = append(b, byte(s.Kind), s.Flags, 0, 0)
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
		if s.Flags&SegFenced != 0 {
			b = be.AppendUint32(b, s.Fence)
		}
		b = be.AppendUint64(b, s.Key)
		b = be.AppendUint64(b, s.Place)
		b = be.AppendUint64(b, s.Size)
		if s.Flags&SegNotify != 0 {
			b = be.AppendUint32(b, s.Imm)
		}
	case KindReadData:
		b = append(b, byte(s.Kind), s.Flags)
		b = be.AppendUint16(b, uint16(len(s.Data)))
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
		b = be.AppendUint64(b, s.Place)
	case KindOpAck:
		b = append(b, byte(s.Kind), byte(len(s.Data)/8), 0, 0)
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
		b = be.AppendUint32(b, s.Limit)
	case KindOpNak:
		b = append(b, byte(s.Kind), s.Status, 0, 0)
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
	case KindAck:
		b = append(b, byte(s.Kind), s.Path, s.Flags, byte(len(s.Data)/8))
		b = be.AppendUint32(b, s.Delay)
		b = be.AppendUint64(b, s.Size)
		b = be.AppendUint64(b, s.Place)
	case KindOpen:
		b = append(b, byte(s.Kind), s.Flags)
		b = be.AppendUint16(b, uint16(1+len(s.Name)+len(s.Data)))
		b = be.AppendUint32(b, s.From)
		b = be.AppendUint32(b, s.Limit)
		b = append(b, byte(len(s.Name)))
		b = append(b, s.Name...)
	case KindAccept:
		b = append(b, byte(s.Kind), 0)
		b = be.AppendUint16(b, uint16(len(s.Data)))
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.From)
		b = be.AppendUint32(b, s.Limit)
	case KindRefuse:
		b = append(b, byte(s.Kind), s.Status)
		b = be.AppendUint16(b, uint16(len(s.Data)))
		b = be.AppendUint32(b, s.Conn)
	case KindClose:
		b = append(b, byte(s.Kind), s.Status, 0, s.Flags)
		b = be.AppendUint32(b, s.Conn)
	case KindAdvert:
		b = append(b, byte(s.Kind), s.Perm)
		b = be.AppendUint16(b, uint16(len(s.Name)))
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
		b = be.AppendUint64(b, s.Key)
		b = be.AppendUint64(b, s.Size)
		return append(b, s.Name...)
	case KindWithdraw:
		b = append(b, byte(s.Kind), 0, 0, 0)
		b = be.AppendUint32(b, s.Conn)
		b = be.AppendUint32(b, s.Op)
		b = be.AppendUint64(b, s.Key)
	case KindPing:
		b = append(b, byte(s.Kind), 0, 0, 0)
	case KindProbe, KindEcho:
		b = append(b, byte(s.Kind), 0, 0, 0)
		b = be.AppendUint64(b, s.Place)
	case KindLink:
		b = append(b, byte(s.Kind))
	default:
		panic("BUG: wire: encoding an unknown segment kind")
	}
	return append(b, s.Data...)
}

// PutAck writes an Ack segment with the given bitmap words to b, which is exactly as long as it.
func PutAck(b []byte, s *Segment, words []uint64) {
	s.Kind, s.Data = KindAck, nil
	s.AppendTo(b[:0])
	b[3] = byte(len(words))
	for i, w := range words {
		binary.BigEndian.PutUint64(b[ackLen+8*i:], w)
	}
}

// PutOpAck writes an OpAck segment with words bitmap words to b, which is exactly as long as it; bit says what bit i is.
func PutOpAck(b []byte, s *Segment, words int, bit func(i int) bool) {
	s.Kind, s.Data = KindOpAck, nil
	s.AppendTo(b[:0])
	b[1] = byte(words)
	for w := range words {
		var v uint64
		for i := range 64 {
			if bit(64*w + i) {
				v |= 1 << i
			}
		}
		binary.BigEndian.PutUint64(b[opAckLen+8*w:], v)
	}
}
