package wire

import (
	"bytes"
	"testing"
)

// FuzzFrameParts cuts any bytes in three, as a receiver that scatters might get them. Pieces that are accepted are a
// frame that is accepted whole, and the same one; cut where the frame's own headers say, whatever is accepted whole is
// accepted in pieces.
func FuzzFrameParts(f *testing.F) {
	whole := build(Header{Type: TypeData, Flags: FlagPayloadSum}, theBulk(), []byte("payload!"), ping)
	f.Add(whole, uint16(FixedLen+BulkLen), uint16(8))
	f.Add(whole, uint16(FixedLen+BulkLen), uint16(7))
	f.Add(whole[:FixedLen+BulkLen], uint16(FixedLen+BulkLen), uint16(0))
	f.Add(build(plainHeader, nil, nil, ping), uint16(FixedLen), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, head, payload uint16) {
		var parts, fr Frame
		h := min(int(head), len(b))
		p := min(h+int(payload), len(b))
		if parts.DecodeParts(b[:h:h], b[h:p:p], b[p:len(b):len(b)]) == nil {
			same(t, b, &parts, &fr)
		}
		if fr.Decode(b) == nil && fr.Flags&FlagBulk != 0 {
			h = FixedLen + BulkLen
			p = h + len(fr.Payload)
			if err := parts.DecodeParts(b[:h:h], b[h:p:p], b[p:]); err != nil {
				t.Fatalf("accepted whole, in pieces: %v", err)
			}
			same(t, b, &parts, &fr)
		}
	})
}

func same(t *testing.T, b []byte, parts, fr *Frame) {
	t.Helper()
	if err := fr.Decode(b); err != nil {
		t.Fatalf("accepted in pieces, whole: %v", err)
	}
	if parts.Header != fr.Header || parts.Bulk != fr.Bulk || !bytes.Equal(parts.Payload, fr.Payload) ||
		!bytes.Equal(parts.Tail, fr.Tail) {
		t.Fatalf("in pieces %+v\nwhole %+v", parts, fr)
	}
	if parts.PayloadIntact() != fr.PayloadIntact() {
		t.Fatal("the payload is intact in one way of reading only")
	}
}
