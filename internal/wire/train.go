package wire

import "encoding/binary"

// Frames with successive parts of one operation form a train. Their headers differ in the packet number, in length and
// place of the payload, in how much follows it, and in checksums (clauses 2.2 and 2.3). So the first frame is decoded,
// and the others are compared with what it leads one to expect.

// Train knows what the headers of the next frame of a train say.
type Train struct {
	clear   uint64 // bytes 0 to 7: version, type, key epoch, path, flags, session
	pn      uint64
	part    uint64 // kind, flags and connection of the bulk header
	op      uint64 // its operation and fence
	key     uint64
	place   uint64
	follows uint64 // bytes of the operation from place on
}

// lenMask is where the payload's length stands beside Train.part.
const lenMask = uint64(0xffff) << 32

// Begin has t expect the frame behind f, which was decoded. It reports false if f is not within a train: it is the last
// frame of its operation, has more than a payload to say, or does not tell what follows.
func (t *Train) Begin(f *Frame) bool {
	b := &f.Bulk
	if f.Flags&^uint8(FlagPayloadSum) != FlagBulk || b.Flags&SegLast != 0 || b.Imm == 0 || b.Imm == 1<<32-1 {
		return false
	}
	t.clear = f.clear()
	t.part = uint64(b.Kind)<<56 | uint64(b.Flags&^SegFirst)<<48 | uint64(b.Conn)
	t.op = uint64(b.Op)<<32 | uint64(b.Fence)
	t.pn, t.key, t.place, t.follows = f.PN+1, b.Key, b.Place+uint64(b.Len), uint64(b.Imm)
	return true
}

// PN is the packet number of the next frame.
func (t *Train) PN() uint64 { return t.pn }

// Follows is how many bytes of the operation are to come.
func (t *Train) Follows() uint64 { return t.follows }

// Expects reports whether b, a frame after its Ethernet header, begins as the next frame does: of a sealed frame this
// is all that can be read.
func (t *Train) Expects(b []byte) bool {
	return len(b) >= FixedLen+BulkLen && binary.BigEndian.Uint64(b) == t.clear &&
		binary.BigEndian.Uint64(b[8:]) == t.pn
}

// Plain returns the payload of b, a frame in plaintext after its Ethernet header, if that is the next frame and its
// checksums are right; else nil, and nothing is known of b.
func (t *Train) Plain(b []byte) []byte {
	payload := t.match(b)
	if payload == nil || binary.BigEndian.Uint32(b[16:]) != bulkSum(b) {
		return nil
	}
	if b[3]&FlagPayloadSum != 0 && Sum(0, payload) != binary.BigEndian.Uint32(b[FixedLen+36:]) {
		return nil
	}
	return payload
}

// Opened is Plain for a frame that was sealed and is opened.
func (t *Train) Opened(b []byte) []byte {
	payload := t.match(b)
	if payload == nil || binary.BigEndian.Uint32(b[16:]) != 0 {
		return nil
	}
	return payload
}

// match returns the payload of b if its headers are the next frame's, whatever its checksums.
func (t *Train) match(b []byte) []byte {
	if len(b) < FixedLen+BulkLen {
		return nil
	}
	h := b[:FixedLen+BulkLen]
	part := binary.BigEndian.Uint64(h[FixedLen:])
	n := part & lenMask >> 32
	differs := (binary.BigEndian.Uint64(h) ^ t.clear) | (binary.BigEndian.Uint64(h[8:]) ^ t.pn) |
		uint64(binary.BigEndian.Uint32(h[20:])) | (part&^lenMask ^ t.part) |
		(binary.BigEndian.Uint64(h[FixedLen+8:]) ^ t.op) | (binary.BigEndian.Uint64(h[FixedLen+16:]) ^ t.key) |
		(binary.BigEndian.Uint64(h[FixedLen+24:]) ^ t.place) |
		(uint64(binary.BigEndian.Uint32(h[FixedLen+32:])) ^ (t.follows - n))
	if differs != 0 || n == 0 || uint64(len(b)-len(h)) < n {
		return nil
	}
	return b[len(h) : len(h)+int(n)]
}

// Advance has t expect the frame behind the one with n bytes of payload that came.
func (t *Train) Advance(n int) {
	t.pn++
	t.place += uint64(n)
	t.follows -= uint64(n)
}
