package wire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"multiedge/internal/frame"
)

const (
	goldenHello  = "0102030405060708 1112131415161718 01 3f 0100 00002328 004e 03 6e6f64"
	goldenInit   = goldenHello + " 21222324 3132333435363738 0002 4142"
	goldenReset  = "21222324 3132333435363738"
	goldenRetry  = "41424344"
	goldenCrypto = "02 01 0f 00 00000304 616263"
	goldenLink   = "3f 0100 01020304 00002328 004e 020000000001"
	goldenParams = "1112131415161718 21222324 31323334 2a 02" + goldenLink +
		" 00 0000 01020305 00000000 0000 000000000000"
)

var (
	theHello = Hello{
		Node: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Epoch: 0x1112131415161718, Flags: HelloAnswer, Link: 63, RxSlots: 256,
		MTU: 9000, Shuffle: 78, Name: []byte("nod"),
	}
	theInit  = Init{Hello: theHello, Session: 0x21222324, PeerEpoch: 0x3132333435363738, Cookie: []byte("AB")}
	theReset = Reset{Session: 0x21222324, Epoch: 0x3132333435363738}

	theRetry  = Retry{Cookie: []byte("ABCD")}
	theCrypto = Crypto{Flags: CryptoRefused, Level: 1, Status: 15, Offset: 0x304, Data: []byte("abc")}
	theLink   = LinkInfo{Link: 63, RxSlots: 256, Version: 0x01020304, MTU: 9000, Shuffle: 78,
		Addr: frame.Ether([6]byte{2, 0, 0, 0, 0, 1})}
	theParams = Params{Epoch: 0x1112131415161718, Session: 0x21222324, Previous: 0x31323334, Shard: 2, Last: 5,
		Links: []LinkInfo{theLink, {Version: 0x01020305}}}
)

// body is one of the set-up messages for tests that treat all alike.
type body struct {
	name, clause, golden string
	want                 any
	encode               func(b []byte) []byte
	decode               func(b []byte) (any, error)
	data                 int // bytes at the end that may be fewer or more
}

var bodies = []body{
	{"hello", "4.1", goldenHello, theHello, theHello.AppendTo,
		func(b []byte) (any, error) { var h Hello; err := h.Decode(b); return h, err }, 0},
	{"init", "4.3", goldenInit, theInit, theInit.AppendTo,
		func(b []byte) (any, error) { var i Init; err := i.Decode(b); return i, err }, 0},
	{"reset", "4.6", goldenReset, theReset, theReset.AppendTo,
		func(b []byte) (any, error) { var r Reset; err := r.Decode(b); return r, err }, 0},
	{"retry", "4.3", goldenRetry, theRetry, func(b []byte) []byte { return append(b, theRetry.Cookie...) },
		func(b []byte) (any, error) { var r Retry; err := r.Decode(b); return r, err }, 3},
	{"crypto", "10.2", goldenCrypto, theCrypto, theCrypto.AppendTo,
		func(b []byte) (any, error) { var c Crypto; err := c.Decode(b); return c, err }, 3},
	{"link", "10.4", goldenLink, theLink, theLink.AppendTo,
		func(b []byte) (any, error) { var l LinkInfo; err := l.Decode(b); return l, err }, 0},
	{"parameters", "10.3", goldenParams, theParams, theParams.AppendTo,
		func(b []byte) (any, error) { var p Params; err := p.Decode(b); return p, err }, 0},
}

// Limits themselves are allowed: of names, cookies, shards, MTUs and the stream of a handshake.
func TestSetupLimits(t *testing.T) {
	least, most, link := theHello, theHello, theLink
	least.MTU, least.Name = MinFrame, []byte{}
	most.MTU, most.Shard, most.Last, most.Flags = 65535, MaxShards-1, MaxShards-1, HelloAnswer|HelloSecure
	most.Name = bytes.Repeat([]byte{'n'}, MaxNodeName)
	link.MTU = 65535
	init := Init{Hello: most, Session: 1, Cookie: []byte{}}
	params := Params{Epoch: 1, Session: 1, Shard: MaxShards - 1, Last: MaxShards - 1, Links: []LinkInfo{}}
	full := params
	full.Links = []LinkInfo{link, {MTU: MinFrame, RxSlots: 1}}
	cookie := Retry{Cookie: make([]byte, maxCookie)}
	end := Crypto{Offset: MaxCrypto, Data: []byte{}}
	last := Crypto{Flags: cryptoKnown, Offset: MaxCrypto - 1, Data: []byte{1}}
	for _, c := range []struct {
		of   int // in bodies
		want any
		b    []byte
	}{
		{0, least, least.AppendTo(nil)}, {0, most, most.AppendTo(nil)}, {1, init, init.AppendTo(nil)},
		{3, cookie, cookie.Cookie}, {4, end, end.AppendTo(nil)}, {4, last, last.AppendTo(nil)},
		{5, link, link.AppendTo(nil)}, {6, params, params.AppendTo(nil)}, {6, full, full.AppendTo(nil)},
	} {
		if got, err := bodies[c.of].decode(c.b); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s at its limits: %v\n got %+v\nwant %+v", bodies[c.of].name, err, got, c.want)
		}
	}
}

func TestSetupLayout(t *testing.T) {
	for _, m := range bodies {
		if got, want := m.encode(nil), unhex(t, m.golden); !bytes.Equal(got, want) {
			t.Errorf("%s (clause %s):\n got %s\nwant %s", m.name, m.clause, hex.EncodeToString(got),
				hex.EncodeToString(want))
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
			if _, err := m.decode(b[:n:n]); (err == nil) != (n >= len(b)-m.data) {
				t.Errorf("%s (clause %s): %d of %d bytes decode with %v", m.name, m.clause, n, len(b), err)
			}
		}
		if _, err := m.decode(append(b, 0)); err == nil && m.data == 0 {
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
		{"hello without identity", "1.1", bodies[0].decode,
			"0000000000000000 1112131415161718 00 00 0100 00002328 0000 00"},
		{"hello without epoch", "1.1", bodies[0].decode,
			"0102030405060708 0000000000000000 00 00 0100 00002328 0000 00"},
		{"hello of shard 1 of 1", "4.1", bodies[0].decode,
			"0102030405060708 1112131415161718 04 00 0100 00002328 0000 00"},
		{"hello link 64", "1.2", bodies[0].decode, "0102030405060708 1112131415161718 00 40 0100 00002328 0000 00"},
		{"hello without slots", "4.1", bodies[0].decode,
			"0102030405060708 1112131415161718 00 00 0000 00002328 0000 00"},
		{"hello MTU 639", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0100 0000027f 0000 00"},
		{"hello MTU 65536", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0100 00010000 0000 00"},
		{"hello name of 65", "4.1", bodies[0].decode, "0102030405060708 1112131415161718 00 00 0100 00002328 0000 41" +
			strings.Repeat("61", 65)},
		{"init session 0", "1.3", bodies[1].decode, goldenHello + " 00000000 3132333435363738 0000"},
		{"init cookie shorter than said", "4.3", bodies[1].decode,
			goldenHello + " 21222324 3132333435363738 0003 4142"},
		{"reset session 0", "4.6", bodies[2].decode, "00000000 3132333435363738"},
		{"reset epoch 0", "4.6", bodies[2].decode, "21222324 0000000000000000"},
		{"cookie of 65", "4.3", bodies[3].decode, strings.Repeat("61", 65)},
		{"crypto flag 3", "10.2", bodies[4].decode, "08 01 00 00 00000000"},
		{"crypto level 2", "10.2", bodies[4].decode, "00 02 00 00 00000000"},
		{"crypto byte 3", "10.2", bodies[4].decode, "00 01 00 01 00000000"},
		{"crypto beyond the stream", "10.2", bodies[4].decode, "00 00 00 00 00004000 61"},
		{"crypto at the highest offset", "10.2", bodies[4].decode, "00 00 00 00 ffffffff 61"},
		{"crypto across the end of the stream", "10.2", bodies[4].decode, "00 00 00 00 00003ffe 616263"},
		{"link 64", "1.2", bodies[5].decode, "40 0100 01020304 00002328 004e 020000000001"},
		{"link of MTU 639", "9.2", bodies[5].decode, "3f 0100 01020304 0000027f 004e 020000000001"},
		{"link of MTU 65536", "10.4", bodies[5].decode, "3f 0100 01020304 00010000 004e 020000000001"},
		{"parameters without epoch", "1.1", bodies[6].decode, "0000000000000000 21222324 31323334 00 00"},
		{"parameters without session", "1.3", bodies[6].decode, "1112131415161718 00000000 31323334 00 00"},
		{"parameters of shard 1 of 1", "1.7", bodies[6].decode, "1112131415161718 21222324 31323334 01 00"},
		{"parameters of one of 9 shards", "1.7", bodies[6].decode, "1112131415161718 21222324 31323334 40 00"},
		{"parameters with a bad link", "10.3", bodies[6].decode,
			"1112131415161718 21222324 31323334 00 01 40 0100 01020304 00002328 004e 020000000001"},
		{"parameters with fewer links than said", "10.3", bodies[6].decode, "1112131415161718 21222324 31323334 00 02" +
			goldenLink},
		{"parameters with more links than said", "10.3", bodies[6].decode, "1112131415161718 21222324 31323334 00 00" +
			goldenLink},
	} {
		if got, err := c.decode(unhex(t, c.bytes)); err == nil {
			t.Errorf("%s (clause %s): accepted as %+v", c.name, c.clause, got)
		}
	}
}

// Bit 31 of the MTU says that a link takes datagrams (clauses 4.1 and 10.4), and changes nothing else.
func TestLinkTakesDatagrams(t *testing.T) {
	for _, joins := range []bool{false, true} {
		h, l := theHello, theLink
		h.Joins, l.Joins = joins, joins
		var gotHello Hello
		if err := gotHello.Decode(h.AppendTo(nil)); err != nil || !reflect.DeepEqual(gotHello, h) {
			t.Errorf("Hello: %+v, %v; want %+v", gotHello, err, h)
		}
		var gotLink LinkInfo
		if err := gotLink.Decode(l.AppendTo(nil)); err != nil || gotLink != l {
			t.Errorf("link: %+v, %v; want %+v", gotLink, err, l)
		}
		if h.AppendTo(nil)[20]>>7 != 0 != joins || l.AppendTo(nil)[7]>>7 != 0 != joins {
			t.Errorf("the bit is not where clause 4.1 or 10.4 has it")
		}
	}
}
