package ipc

import (
	"encoding/binary"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzSQE(f *testing.F) {
	var b [SQESize]byte
	EncodeSQE(b[:], &SQE{Op: OpWrite, Flags: FlagNotify, Conn: 1, Imm: 2, Region: 3, Token: 4, Key: 5, RemoteOff: 6,
		LocalOff: 7, Len: 8})
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpWrite, InlineLen: 24})
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpCredit, Conn: 1, Imm: 128})
	f.Add(append([]byte(nil), b[:]...))
	atomic := SQE{Conn: 1, Token: 2, Key: 3, RemoteOff: 8}
	atomic.SetAtomic(AtomicCAS, 4, 5, 6)
	EncodeSQE(b[:], &atomic)
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpPieces, InlineLen: 2, Conn: 1, Pieces: [PiecesPerEntry]Piece{{1, 2, 3}, {4, 5, 6}}})
	f.Add(append([]byte(nil), b[:]...))
	bytes := theBytes(BytesPerEntry)
	EncodeSQE(b[:], &bytes)
	f.Add(append([]byte(nil), b[:]...))
	bytes = theBytes(1)
	EncodeSQE(b[:], &bytes)
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpSend, Flags: FlagNotify, Conn: 1, Imm: 2, Region: 3, Token: 4,
		RemoteOff: ^uint64(0), Len: 8})
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpReceive, Key: 5, Region: 3, Token: 4, LocalOff: 7, Len: 8})
	f.Add(append([]byte(nil), b[:]...))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < SQESize {
			return
		}
		var e SQE
		if DecodeSQE(in, &e) != nil {
			return
		}
		if e.Op == OpCredit { // the fields it does not use are not carried over
			return
		}
		var out [SQESize]byte
		EncodeSQE(out[:], &e)
		if string(out[:]) != string(in[:SQESize]) {
			t.Fatalf("decoded %x\nencoded %x", in[:SQESize], out)
		}
		most := uint8(MaxInline)
		if e.Op == OpBytes {
			most = BytesPerEntry
		}
		if e.LocalOff+e.Len < e.LocalOff || e.InlineLen > most {
			t.Fatalf("accepted %+v", e)
		}
	})
}

func FuzzCQE(f *testing.F) {
	var b [CQESize]byte
	EncodeCQE(b[:], &CQE{Kind: CQNotify, Conn: 1, Imm: 2, Len: 3})
	f.Add(append([]byte(nil), b[:]...))
	EncodeCQE(b[:], &CQE{Kind: CQReceive, Status: StatusTooLong, Conn: 1, Imm: 2, Len: 3, HasImm: true})
	f.Add(append([]byte(nil), b[:]...))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < CQESize {
			return
		}
		var e CQE
		if DecodeCQE(in, &e) != nil {
			return
		}
		var out [CQESize]byte
		EncodeCQE(out[:], &e)
		if string(out[:]) != string(in[:CQESize]) {
			t.Fatalf("decoded %x\nencoded %x", in[:CQESize], out)
		}
	})
}

// FuzzMessage reads any packet, as the daemon and clients do. What it understands it writes again: what is written is
// shorter or the same, and means the same.
func FuzzMessage(f *testing.F) {
	for _, m := range everyStruct() {
		b, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := Decode(in)
		if err != nil {
			if _, ours := err.(*Error); ours != (m != nil) {
				t.Fatalf("error %v with message %+v", err, m)
			}
			return
		}
		b, err := m.Encode()
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", m, err)
		}
		again, err := Decode(b)
		if err != nil {
			t.Fatalf("own encoding %q: %v", b, err)
		}
		again.Body, m.Body = nil, nil // spacing may differ
		if !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}

// FuzzGreeting lets any two greetings meet: nobody is given what was not asked for or is not there.
func FuzzGreeting(f *testing.F) {
	f.Add(uint32(2), uint32(2), uint64(0), uint64(0), uint16(64), uint16(32), uint32(2), uint32(2), uint64(1))
	f.Add(uint32(1), uint32(9), uint64(3), uint64(1), uint16(128), uint16(64), uint32(2), uint32(3), uint64(1))
	f.Fuzz(func(t *testing.T, lowest, highest uint32, wanted, required uint64, sqe, cqe uint16, from, to uint32,
		have uint64) {
		g := Greeting{Lowest: lowest, Highest: highest, Features: Features(wanted), Required: Features(required),
			SQESize: sqe, CQESize: cqe, Depth: 8}
		version, in, err := g.agree(from, to, Features(have))
		if err != nil {
			return
		}
		r := Greeting{Version: version, Features: in, SQESize: SQESize, CQESize: CQESize, Rings: Layout{8, 32}}
		if err := g.CheckReply(&r); err != nil || version > to || in&^Features(have) != 0 {
			t.Fatalf("%+v agrees on %d and %#x: %v", g, version, in, err)
		}
	})
}

// FuzzRings lets a hostile peer write anything anywhere in the shared memory between the calls of an honest one.
func FuzzRings(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6})
	f.Add([]byte{0, 0, 9, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		l, _ := LayoutFor(MinDepth)
		mem := alignedBytes(l.Size())
		r, err := NewRings(mem, l)
		must(t, err)
		sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
		sq, cq := make([]SQE, 5), make([]CQE, 5)
		for len(in) >= 6 {
			off, v := binary.LittleEndian.Uint16(in), in[2:6]
			at := int(off) % (len(mem) - 4)
			if off&0x8000 != 0 { // mostly the control words
				at = int(off) % wordCount * wordStride
			}
			copy(mem[at:], v)
			in = in[6:]
			if n, err := sc.Drain(sq); n > len(sq) || err == nil && n < 0 {
				t.Fatal(n)
			}
			if n, err := sp.Room(); err == nil && n > 0 {
				sp.Put(&SQE{Op: OpWrite})
				sp.Publish()
			} else if n < 0 || n > MinDepth {
				t.Fatalf("submission room %d", n)
			}
			if n, err := cp.Refresh(); err == nil && (n < 0 || n > MinDepth*cqFactor) {
				t.Fatalf("completion room %d", n)
			}
			cp.Put(&CQE{Kind: CQComplete})
			cp.Publish()
			cc.Drain(cq)
		}
	})
}

// alignedBytes returns memory as a mapping would be aligned, as far as rings care.
func alignedBytes(n int) []byte {
	b := make([]byte, n+64)
	for i := range 64 {
		if aligned(b[i:]) {
			return b[i : i+n]
		}
	}
	return b[:n]
}

// FuzzRights reads any bytes as the control data of a packet, from which descriptors are taken.
func FuzzRights(f *testing.F) {
	f.Add(unix.UnixRights(0, 1))
	f.Add(unix.UnixCredentials(&unix.Ucred{Pid: 1}))
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		fds, _ := parseRights(in)
		if len(fds)*4 > len(in) {
			t.Fatalf("%d descriptors in %d bytes", len(fds), len(in))
		}
	})
}
