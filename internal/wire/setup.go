package wire

import "encoding/binary"

// HelloAnswer asks the receiver of a Hello to send one back (clause 4.1).
const HelloAnswer = 1 << 0

// Hello is the body of a Hello and the start of Init and InitAck (clauses 4.1 to 4.4).
type Hello struct {
	Node    [8]byte
	Epoch   uint64
	Flags   uint8
	Link    uint8
	RxSlots uint16
	MTU     uint32
	Shuffle uint16
	Name    []byte
}

// Init is the body of Init and InitAck.
type Init struct {
	Hello
	Session   uint32
	PeerEpoch uint64
	Cookie    []byte
}

// Reset is the body of Reset (clause 4.6).
type Reset struct {
	Session uint32
	Epoch   uint64
}

const helloLen = 27

// AppendTo appends the encoding of h to b. len(h.Name) is at most MaxNodeName.
func (h *Hello) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, h.Node[:]...)
	b = be.AppendUint64(b, h.Epoch)
	b = append(b, h.Flags, h.Link)
	b = be.AppendUint16(b, h.RxSlots)
	b = be.AppendUint32(b, h.MTU)
	b = be.AppendUint16(b, h.Shuffle)
	b = append(b, byte(len(h.Name)))
	return append(b, h.Name...)
}

func (h *Hello) decode(b []byte) (rest []byte, err error) {
	if len(b) < helloLen {
		return nil, ErrShort
	}
	be := binary.BigEndian
	copy(h.Node[:], b)
	h.Epoch = be.Uint64(b[8:])
	h.Flags, h.Link = b[16], b[17]
	h.RxSlots = be.Uint16(b[18:])
	h.MTU = be.Uint32(b[20:])
	h.Shuffle = be.Uint16(b[24:])
	n := int(b[26])
	if n > MaxNodeName || len(b) < helloLen+n {
		return nil, ErrShort
	}
	if h.Node == [8]byte{} || h.Epoch == 0 || h.Link > 63 || h.Flags&^uint8(HelloAnswer) != 0 || h.MTU < MinFrame || h.MTU > 65535 || h.RxSlots == 0 {
		return nil, ErrReserved
	}
	h.Name = b[helloLen : helloLen+n]
	return b[helloLen+n:], nil
}

// Decode reads the body of a Hello.
func (h *Hello) Decode(b []byte) error {
	rest, err := h.decode(b)
	if err == nil && len(rest) != 0 {
		err = ErrReserved
	}
	return err
}

// AppendTo appends the encoding of i to b.
func (i *Init) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	b = i.Hello.AppendTo(b)
	b = be.AppendUint32(b, i.Session)
	b = be.AppendUint64(b, i.PeerEpoch)
	b = be.AppendUint16(b, uint16(len(i.Cookie)))
	return append(b, i.Cookie...)
}

// Decode reads the body of an Init or InitAck.
func (i *Init) Decode(b []byte) error {
	b, err := i.Hello.decode(b)
	if err != nil {
		return err
	}
	if len(b) < 14 {
		return ErrShort
	}
	be := binary.BigEndian
	i.Session, i.PeerEpoch = be.Uint32(b), be.Uint64(b[4:])
	if n := int(be.Uint16(b[12:])); n != len(b)-14 {
		return ErrShort
	}
	if i.Session == 0 {
		return ErrReserved
	}
	i.Cookie = b[14:]
	return nil
}

// AppendTo appends the encoding of r to b.
func (r *Reset) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, r.Session), r.Epoch)
}

// Decode reads the body of a Reset.
func (r *Reset) Decode(b []byte) error {
	if len(b) != 12 {
		return ErrShort
	}
	r.Session, r.Epoch = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
	if r.Session == 0 || r.Epoch == 0 {
		return ErrReserved
	}
	return nil
}
