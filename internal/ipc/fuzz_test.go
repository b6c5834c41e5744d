package ipc

import (
	"encoding/binary"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzSQE(f *testing.F) {
	var b [SQESize]byte
	EncodeSQE(b[:], &SQE{Op: OpWrite, Flags: FlagNotify, Conn: 1, Imm: 2, Region: 3, Token: 4, Key: 5, RemoteOff: 6, LocalOff: 7, Len: 8})
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpWrite, InlineLen: 24})
	f.Add(append([]byte(nil), b[:]...))
	EncodeSQE(b[:], &SQE{Op: OpCredit, Conn: 1, Imm: 128})
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
		if e.LocalOff+e.Len < e.LocalOff || e.InlineLen > MaxInline {
			t.Fatalf("accepted %+v", e)
		}
	})
}

func FuzzCQE(f *testing.F) {
	var b [CQESize]byte
	EncodeCQE(b[:], &CQE{Kind: CQNotify, Conn: 1, Imm: 2, Len: 3})
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

func FuzzMessage(f *testing.F) {
	for _, m := range []*Message{
		{ID: 1, Kind: KindHello, Version: 1, PID: 5, Depth: 1024},
		{ID: 2, Kind: KindDial, Peer: "b", Service: "s", Data: []byte("x"), Timeout: 5},
		{Kind: KindAdvert, Conn: 1, Name: "n", Key: 1 << 63, Size: 5, Perm: 3},
		{ID: 3, Kind: KindStatus, Body: []byte(`{"a":[1,2]}`), More: true},
		{ID: 3, Kind: "x", Error: &Error{Code: "c", Text: "t"}},
	} {
		b, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := Decode(in)
		if err != nil {
			return
		}
		b, err := m.Encode()
		if err != nil {
			return // escaping made it longer than a packet
		}
		again, err := Decode(b)
		if err != nil {
			t.Fatalf("own encoding %q: %v", b, err)
		}
		again.Body, m.Body = nil, nil // spacing may differ
		if len(again.Data) == 0 && len(m.Data) == 0 {
			again.Data, m.Data = nil, nil
		}
		if !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v", m, again)
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
		if err != nil {
			t.Fatal(err)
		}
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
