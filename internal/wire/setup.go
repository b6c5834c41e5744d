package wire

import (
	"encoding/binary"

	"multiedge/internal/frame"
)

// Flags of Hello (clause 4.1).
const (
	HelloAnswer     = 1 << 0 // the receiver shall send one back
	HelloSecure     = 1 << 1 // the sender talks encrypted only
	helloFlagsKnown = HelloAnswer | HelloSecure
)

// MaxShards is the number of shards that a node can have (clause 1.7).
const MaxShards = 8

// Hello is the body of a Hello and the start of Init and InitAck (clauses 4.1 to 4.4).
type Hello struct {
	Node    [8]byte
	Epoch   uint64
	Flags   uint8
	Shard   uint8 // of the sender
	Last    uint8 // shard of its node
	Link    uint8
	RxSlots uint16
	MTU     uint32
	Joins   bool // the link takes frames in datagrams too (clause 12)
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

// joins is the bit of an MTU in Hello and LinkInfo that says that the link takes frames in datagrams too.
const joins = 1 << 31

func putMTU(mtu uint32, joined bool) uint32 {
	if joined {
		mtu |= joins
	}
	return mtu
}

// AppendTo appends the encoding of h to b. len(h.Name) is at most MaxNodeName.
func (h *Hello) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, h.Node[:]...)
	b = be.AppendUint64(b, h.Epoch)
	b = append(b, h.Flags|h.Shard<<2|h.Last<<5, h.Link)
	b = be.AppendUint16(b, h.RxSlots)
	b = be.AppendUint32(b, putMTU(h.MTU, h.Joins))
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
	h.Flags, h.Shard, h.Last, h.Link = b[16]&helloFlagsKnown, b[16]>>2&7, b[16]>>5, b[17]
	h.RxSlots = be.Uint16(b[18:])
	h.MTU, h.Joins = be.Uint32(b[20:])&^joins, b[20]>>7 != 0
	h.Shuffle = be.Uint16(b[24:])
	n := int(b[26])
	if n > MaxNodeName || len(b) < helloLen+n {
		return nil, ErrShort
	}
	if h.Node == [8]byte{} || h.Epoch == 0 || h.Link > 63 || h.Shard > h.Last || h.MTU < MinFrame || h.MTU > 65535 ||
		h.RxSlots == 0 {
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

// Retry is the body of Retry (clause 4.3): what the sender of an Init has to say again to be listened to.
type Retry struct{ Cookie []byte }

// CookieLen is the length of the cookies we make, in bytes; a peer's may have another.
const CookieLen = 16

const maxCookie = 64

// ProofLen is the length in bytes of the proof that follows the body of an Init on an IP link (clause 21.3).
const ProofLen = 16

// Decode reads the body of a Retry.
func (r *Retry) Decode(b []byte) error {
	if len(b) == 0 || len(b) > maxCookie {
		return ErrShort
	}
	r.Cookie = b
	return nil
}

// Crypto is the body of Crypto (clause 10.2): a piece of the handshake's stream of one level.
type Crypto struct {
	Flags  uint8
	Level  uint8 // 0: in plaintext, 1: sealed by the handshake's keys
	Status uint8 // with CryptoRefused
	Offset uint32
	Data   []byte
}

// Flags of Crypto.
const (
	CryptoDone    = 1 << 0 // the sender has the peer's last word: the session is open
	CryptoRefused = 1 << 1 // the sender will not have this session, for the reason in Status
	CryptoKept    = 1 << 2 // the session of before lives, this one is not needed
	cryptoKnown   = CryptoDone | CryptoRefused | CryptoKept
)

// CryptoLen is the length of a Crypto body without its data, in bytes.
const CryptoLen = 8

// MaxCrypto bounds the stream of one level, in bytes.
const MaxCrypto = 16384

// AppendTo appends the encoding of c to b.
func (c *Crypto) AppendTo(b []byte) []byte {
	b = append(b, c.Flags, c.Level, c.Status, 0)
	return append(binary.BigEndian.AppendUint32(b, c.Offset), c.Data...)
}

// Decode reads the body of a Crypto.
func (c *Crypto) Decode(b []byte) error {
	if len(b) < CryptoLen {
		return ErrShort
	}
	c.Flags, c.Level, c.Status, c.Offset, c.Data = b[0], b[1], b[2], binary.BigEndian.Uint32(b[4:]), b[CryptoLen:]
	if c.Flags&^uint8(cryptoKnown) != 0 || c.Level > 1 || b[3] != 0 ||
		uint64(c.Offset)+uint64(len(c.Data)) > MaxCrypto {
		return ErrReserved
	}
	return nil
}

// LinkInfo is what a node says of one of its links, authenticated (clause 10.4).
type LinkInfo struct {
	Link    uint8
	RxSlots uint16 // 0: the link is gone
	Version uint32 // grows with each change of any link of the node
	MTU     uint32
	Joins   bool // as in Hello
	Shuffle uint16
	Addr    frame.Addr
}

// LinkInfoLen is the length of an encoded LinkInfo, in bytes.
const LinkInfoLen = 19

// AppendTo appends the encoding of l to b.
func (l *LinkInfo) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, l.Link)
	b = be.AppendUint16(b, l.RxSlots)
	b = be.AppendUint32(b, l.Version)
	b = be.AppendUint32(b, putMTU(l.MTU, l.Joins))
	b = be.AppendUint16(b, l.Shuffle)
	return l.Addr.AppendTo(b)
}

// Decode reads the LinkInfoLen bytes of b.
func (l *LinkInfo) Decode(b []byte) error {
	if len(b) != LinkInfoLen {
		return ErrShort
	}
	be := binary.BigEndian
	*l = LinkInfo{Link: b[0], RxSlots: be.Uint16(b[1:]), Version: be.Uint32(b[3:]), MTU: be.Uint32(b[7:]) &^ joins,
		Joins: b[7]>>7 != 0, Shuffle: be.Uint16(b[11:]), Addr: frame.Ether([6]byte(b[13:]))}
	if l.Link > 63 || l.RxSlots != 0 && (l.MTU < MinFrame || l.MTU > 65535) {
		return ErrReserved
	}
	return nil
}

// Params is what a node says of itself inside the handshake (clause 10.3).
type Params struct {
	Epoch    uint64
	Session  uint32 // the sender's number for the session
	Previous uint32 // the receiver's number for the session that the sender believes lost; 0 for none
	Shard    uint8  // of the sender
	Last     uint8  // shard of the sender's node
	Links    []LinkInfo
}

const paramsLen = 18

// AppendTo appends the encoding of p to b.
func (p *Params) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, p.Epoch)
	b = be.AppendUint32(b, p.Session)
	b = be.AppendUint32(b, p.Previous)
	b = append(b, p.Shard|p.Last<<3, byte(len(p.Links)))
	for i := range p.Links {
		b = p.Links[i].AppendTo(b)
	}
	return b
}

// Decode reads the parameters.
func (p *Params) Decode(b []byte) error {
	if len(b) < paramsLen || len(b) != paramsLen+LinkInfoLen*int(b[17]) {
		return ErrShort
	}
	be := binary.BigEndian
	*p = Params{Epoch: be.Uint64(b), Session: be.Uint32(b[8:]), Previous: be.Uint32(b[12:]), Shard: b[16] & 7,
		Last: b[16] >> 3, Links: make([]LinkInfo, b[17])}
	if p.Epoch == 0 || p.Session == 0 || p.Last >= MaxShards || p.Shard > p.Last {
		return ErrReserved
	}
	for i := range p.Links {
		if err := p.Links[i].Decode(b[paramsLen+i*LinkInfoLen:][:LinkInfoLen]); err != nil {
			return err
		}
	}
	return nil
}
