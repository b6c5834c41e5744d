package wire

import "encoding/binary"

var be = binary.BigEndian

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
	KindKeys

	KindSend     Kind = 21
	KindSendNext Kind = 22
	KindCredit   Kind = 23
	KindWant     Kind = 24

	KindStage    Kind = 25
	KindCommit   Kind = 26
	KindDiscard  Kind = 27
	KindUnstaged Kind = 28

	KindTell Kind = 29

	MaxKinds = 32 // more than the largest
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

	SegStrict = 1 << 6 // of a Send or Tell: without a buffer it fails (clause 14.6)

	reserved     = 0xff &^ segFlagsKnown
	sendReserved = reserved &^ SegStrict
)

// Flags of other segments.
const (
	AckNack         = 1 << 0 // clause 3.4, Ack
	AckMarks        = 1 << 1 // likewise: counts of marks (clause 21.12)
	OpenOrdered     = 1 << 0 // clause 5.3, Open
	OpenOverlap     = 1 << 1 // likewise
	CloseUnanswered = 1 << 0 // clause 5.4, Close
	KeysReady       = 1 << 0 // clause 10.6, Keys
	CreditShared    = 1 << 0 // clause 14.5, Credit
)

// Limits of variable parts, in bytes or words.
const (
	MaxWords       = 255
	MaxServiceName = 64
	MaxNodeName    = 64
	MaxPrivate     = 512
	MaxText        = 512
	PublicLen      = 32 // of Keys
)

// Segment is one decoded tail segment: the union of all kinds. Clause 3.4 says which fields have a meaning for which
// kind.
type Segment struct {
	Kind   Kind
	Flags  uint8
	Path   uint8 // Ack
	Status uint8 // OpNak, Refuse, Close; Commit: KindWrite or KindSend, of which it is the operation
	Perm   uint8 // Advert
	Conn   uint32
	From   uint32 // Open, Accept: the sender's connection number; Commit: number of the composed message
	Op     uint32 // OpAck: base; Advert, Withdraw, Keys: number; Stage, Discard, Unstaged: of the composed message
	Fence  uint32
	Limit  uint32 // OpAck: the first operation, Credit: the first message that may not be sent; Ack: frames with CE
	Window uint32 // Open, Accept; Ack: frames with ECT(0)
	Stamp  uint32 // Stage
	Bytes  uint32 // Commit: of the operation
	Imm    uint32
	Delay  uint32 // Ack, nanoseconds
	Key    uint64 // Send, SendNext, Tell, Want: the number of a message
	Place  uint64 // Ack: floor; Probe, Echo: nonce
	Size   uint64 // ReadRequest, Tell: length; Advert, Stage, Commit: size; Ack: largest; Atomic: AtomicSize
	Name   []byte // Open: service; Advert: name
	// payload, private data, text; Ack and OpAck: bitmap words; Link: a LinkInfo; Keys: PublicLen bytes; Atomic and
	// AtomicResult: words of 8 bytes; Commit: one, the sum of the stamps
	Data []byte
}

// Word returns word i of the bitmap in Data.
func (s *Segment) Word(i int) uint64 { return be.Uint64(s.Data[8*i:]) }

// Words is the number of bitmap words in Data.
func (s *Segment) Words() int { return len(s.Data) / 8 }

// Layout is how segments of one kind are encoded (clause 3.4): four bytes that start with the kind, further fixed
// fields, four bytes for each optional field, and a variable part.
type Layout struct {
	Fixed    int   // bytes of the fixed part; 0: there is no such kind
	Optional uint8 // flags of which each adds a field of four bytes
	Reserved uint8 // bits of byte 1 that are zero
	NoData   bool  // there is no variable part: bytes 2 and 3 are zero
	Named    bool  // the variable part starts with Name
	Bulk     bool  // it can be a frame's bulk segment (clause 2.3)
	// Put appends everything but Data.
	Put func(s *Segment, b []byte) []byte
	// Next decodes a tail that holds the fixed part and the optional fields, and returns the length of the variable
	// part. Before the call s.Flags is byte 1, n the 16 bits behind it, and s.Kind the kind of the segment before.
	Next func(s *Segment, tail []byte, n int) (variable int, err error)
}

// Layouts is the table of all kinds. A kind with a file of its own makes its entries there, before anything is decoded;
// beside these tests alone change it.
var Layouts = [MaxKinds]Layout{
	KindPad:  {Fixed: PadLen, Reserved: 0xff, Put: putPad, Next: nextPad},
	KindPing: {Fixed: 4, Reserved: 0xff, NoData: true, Put: putPing, Next: nextPad},

	KindWrite: {Fixed: 28, Reserved: reserved, Optional: SegFenced | SegNotify, Bulk: true, Put: putWrite,
		Next: nextWrite},
	KindWriteNext: {Fixed: writeNextLen, Optional: SegNotify, Put: putWriteNext}, // decoded by Next itself
	KindReadRequest: {Fixed: readRequestLen, Reserved: reserved, Optional: SegFenced | SegNotify, NoData: true,
		Put: putReadRequest}, // likewise
	KindReadData: {Fixed: readDataLen, Reserved: reserved, Bulk: true, Put: putReadData}, // likewise

	KindSend: {Fixed: 20, Reserved: sendReserved, Optional: SegFenced | SegNotify, Bulk: true, Put: putSend,
		Next: nextSend},
	KindSendNext: {Fixed: sendNextLen, Optional: SegNotify, Put: putSendNext}, // decoded by Next itself
	KindCredit:   {Fixed: 12, Reserved: ^uint8(CreditShared), NoData: true, Put: putCredit, Next: nextCredit},
	KindWant:     {Fixed: 12, Reserved: 0xff, NoData: true, Put: putWant, Next: nextWant},
	KindTell: {Fixed: 20, Reserved: sendReserved, Optional: SegFenced | SegNotify, NoData: true, Put: putTell,
		Next: nextTell},

	KindOpAck: {Fixed: opAckLen, Put: putOpAck, Next: nextOpAck},
	KindOpNak: {Fixed: 12, NoData: true, Put: putOpNak, Next: nextOpNak},
	KindAck:   {Fixed: ackLen, Put: putAck}, // decoded by Next itself

	KindOpen: {Fixed: openLen, Reserved: ^uint8(OpenOrdered | OpenOverlap), Named: true, Put: putOpen,
		Next: nextOpen},
	KindAccept:   {Fixed: 16, Reserved: 0xff, Put: putAccept, Next: nextAccept},
	KindRefuse:   {Fixed: 8, Put: putRefuse, Next: nextRefuse},
	KindClose:    {Fixed: 8, Put: putClose, Next: nextClose},
	KindAdvert:   {Fixed: advertLen, Named: true, Put: putAdvert, Next: nextAdvert},
	KindWithdraw: {Fixed: 20, Reserved: 0xff, NoData: true, Put: putWithdraw, Next: nextWithdraw},

	KindProbe: {Fixed: 12, Reserved: 0xff, NoData: true, Put: putProbe, Next: nextProbe},
	KindEcho:  {Fixed: 12, Reserved: 0xff, Put: putEcho, Next: nextEcho},
	KindLink:  {Fixed: 1, Put: putLink, Next: nextLink},
	KindKeys:  {Fixed: 8, Reserved: ^uint8(KeysReady), Put: putKeys, Next: nextKeys},

	KindStage: {Fixed: 24, Reserved: 0xff, Put: putStage, Next: nextStage},
	KindCommit: {Fixed: 40, Reserved: sendReserved, Optional: SegFenced | SegNotify, Put: putCommit,
		Next: nextCommit},
	KindDiscard:  {Fixed: 12, Reserved: 0xff, NoData: true, Put: putStaged, Next: nextStaged},
	KindUnstaged: {Fixed: 12, Reserved: 0xff, NoData: true, Put: putStaged, Next: nextStaged},
}

// Len returns the encoded length of s in bytes.
func (s *Segment) Len() int {
	l := &Layouts[s.Kind%MaxKinds]
	n := l.Fixed + optional(s.Flags&l.Optional) + len(s.Data)
	if l.Named {
		n += len(s.Name)
	}
	if s.Kind == KindAck {
		n += ackMarks(s.Flags)
	}
	return n
}

// optional is the length of the optional fields of those flags.
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
	l := &Layouts[s.Kind%MaxKinds]
	if l.Put == nil {
		panic("BUG: wire: encoding an unknown segment kind")
	}
	return append(l.Put(s, b), s.Data...)
}

// Next decodes the first segment of tail into s and returns what follows it. WriteNext is resolved against the Write or
// WriteNext decoded before it in the same frame, SendNext likewise: decode a tail into one Segment again and again.
func (s *Segment) Next(tail []byte) (rest []byte, err error) {
	if len(tail) < 4 {
		return nil, ErrSegment
	}
	k := Kind(tail[0])
	switch k {
	case KindWriteNext:
		return s.nextWriteNext(tail)
	case KindSendNext:
		return s.nextSendNext(tail)
	case KindReadData:
		return s.nextReadData(tail)
	case KindReadRequest:
		return s.nextReadRequest(tail)
	case KindAck:
		return s.nextAck(tail)
	}
	if k >= MaxKinds || Layouts[k].Fixed == 0 {
		return nil, ErrKind
	}
	l := &Layouts[k]
	s.Flags, s.Data = tail[1], nil
	if s.Flags&l.Reserved != 0 {
		return nil, ErrReserved
	}
	n := l.Fixed + optional(s.Flags&l.Optional)
	if len(tail) < n {
		return nil, ErrSegment
	}
	variable := int(be.Uint16(tail[2:]))
	if l.NoData && variable != 0 {
		return nil, ErrReserved
	}
	if variable, err = l.Next(s, tail, variable); err != nil {
		return nil, err
	}
	s.Kind = k
	if len(tail) < n+variable {
		return nil, ErrSegment
	}
	s.Data = tail[n : n+variable]
	if l.Named {
		s.Data = s.Data[len(s.Name):]
	}
	return tail[n+variable:], nil
}
