package wire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

const (
	goldenHello = "0102030405060708 1112131415161718 01 3f 0100 00002328 004e 03 6e6f64"
	goldenInit  = goldenHello + " 21222324 3132333435363738 0002 4142"
	goldenReset = "21222324 3132333435363738"
)

var (
	theHello = Hello{
		Node: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Epoch: 0x1112131415161718, Flags: HelloAnswer, Link: 63, RxSlots: 256, MTU: 9000, Shuffle: 78, Name: []byte("nod"),
	}
	theInit  = Init{Hello: theHello, Session: 0x21222324, PeerEpoch: 0x3132333435363738, Cookie: []byte("AB")}
	theReset = Reset{Session: 0x21222324, Epoch: 0x3132333435363738}
)

// body is one of the set-up messages for tests that treat all alike.
type body struct {
	name, clause, golden string
	want                 any
	encode               func(b []byte) []byte
	decode               func(b []byte) (any, error)
}

var bodies = []body{
	{"hello", "4.1", goldenHello, theHello, theHello.AppendTo, func(b []byte) (any, error) { var h Hello; err := h.Decode(b); return h, err }},
	{"init", "4.3", goldenInit, theInit, theInit.AppendTo, func(b []byte) (any, error) { var i Init; err := i.Decode(b); return i, err }},
	{"reset", "4.6", goldenReset, theReset, theReset.AppendTo, func(b []byte) (any, error) { var r Reset; err := r.Decode(b); return r, err }},
}

func TestSetupLayout(t *testing.T) {
	for _, m := range bodies {
		if got, want := m.encode(nil), unhex(t, m.golden); !bytes.Equal(got, want) {
			t.Errorf("%s (clause %s):\n got %s\nwant %s", m.name, m.clause, hex.EncodeToString(got), hex.EncodeToString(want))
		}
	}
}

func TestSetupRoundTrip(t *testing.T) {
	for _, m := range bodies {
		if got, err := m.decode(unhex(t, m.golden)); err != nil || !reflect.DeepEqual(got, m.want) {
			t.Errorf("%s (clause %s): %v\n got %+v\nwant %+v", m.name, m.clause, err, got, m.want)
		}
	}
}

// Clause 2.7; a body fills its tail exactly, so one byte more is as wrong as one less.
func TestSetupTruncatedAndLong(t *testing.T) {
	for _, m := range bodies {
		b := unhex(t, m.golden)
		for n := range b {
			if _, err := m.decode(b[:n:n]); err == nil {
				t.Errorf("%s (clause %s): %d of %d bytes decode", m.name, m.clause, n, len(b))
			}
		}
		if _, err := m.decode(append(b, 0)); err == nil {
			t.Errorf("%s (clause %s): a byte too many decodes", m.name, m.clause)
		}
	}
}

func TestSetupRefused(t *testing.T) {
	for _, c := range []struct {
		name, clause string
		decode       func([]byte) (any, error)
		bytes        string
	}{
		{"hello without identity", "1.1", bodies[0].decode, "0000000000000000 1112131415161718 00 00 0100 00002328 0000 00"},
		{"hello without epoch", "1.1", bodies[0].decode, "0102030405060708 0000000000000000 00 00 0100 00002328 0000 00"},
		{"hello flag 1", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 02 00 0100 00002328 0000 00"},
		{"hello link 64", "1.2", bodies[0].decode, "0102030405060708 1112131415161718 00 40 0100 00002328 0000 00"},
		{"hello without slots", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0000 00002328 0000 00"},
		{"hello MTU 0", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0100 00000000 0000 00"},
		{"hello MTU 65536", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0100 00010000 0000 00"},
		{"hello name of 65", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0100 00002328 0000 41" + strings.Repeat("61", 65)},
		{"init session 0", "1.3", bodies[1].decode, goldenHello + " 00000000 3132333435363738 0000"},
		{"init cookie shorter than said", "4.3", bodies[1].decode, goldenHello + " 21222324 3132333435363738 0003 4142"},
		{"reset session 0", "4.6", bodies[2].decode, "00000000 3132333435363738"},
		{"reset epoch 0", "4.6", bodies[2].decode, "21222324 0000000000000000"},
	} {
		if got, err := c.decode(unhex(t, c.bytes)); err == nil {
			t.Errorf("%s (clause %s): accepted as %+v", c.name, c.clause, got)
		}
	}
}
