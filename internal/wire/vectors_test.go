package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"multiedge/internal/frame"
)

// octets is a byte string of a vector: hexadecimal, in which blanks separate fields.
type octets []byte

func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = hex.DecodeString(strings.ReplaceAll(string(text), " ", ""))
	return err
}

// number is an integer of a vector: a JSON number, or a string that starts with 0x.
type number uint64

func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseUint(strings.Trim(string(b), `"`), 0, 64)
	*n = number(v)
	return err
}

// vectors reads a file of docs/vectors, which has no field that T lacks.
func vectors[T any](t *testing.T, name string) (list []T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../docs/vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		t.Fatal(name, ": ", err)
	}
	if len(list) == 0 {
		t.Fatal(name, " is empty")
	}
	return list
}

// The segments of docs/vectors/segments.json, each kind at least once (clause 3.4).
func TestVectorsOfSegments(t *testing.T) {
	type fields struct {
		Kind, Flags, Path, Status, Permissions                                              uint8
		Connection, Sender, Operation, Fence, Limit, Window, Stamp, Bytes, Immediate, Delay uint32
		Key, Place, Size                                                                    number
		Name, Data                                                                          octets
	}
	list := vectors[struct {
		Name, Clause string
		Before       *int
		Fields       fields
		Hex          octets
	}](t, "segments.json")
	seen := map[Kind]bool{}
	for _, v := range list {
		f := v.Fields
		want := Segment{Kind: Kind(f.Kind), Flags: f.Flags, Path: f.Path, Status: f.Status, Perm: f.Permissions,
			Conn: f.Connection, From: f.Sender, Op: f.Operation, Fence: f.Fence, Limit: f.Limit, Window: f.Window,
			Stamp: f.Stamp, Bytes: f.Bytes, Imm: f.Immediate, Delay: f.Delay, Key: uint64(f.Key),
			Place: uint64(f.Place), Size: uint64(f.Size), Name: f.Name, Data: f.Data}
		var s Segment
		if v.Before != nil {
			if _, err := s.Next(list[*v.Before].Hex); err != nil {
				t.Fatalf("%s: the segment before: %v", v.Name, err)
			}
		}
		rest, err := s.Next(v.Hex)
		if err != nil || len(rest) != 0 {
			t.Errorf("%s (clause %s): %v, %d bytes left", v.Name, v.Clause, err, len(rest))
			continue
		}
		seen[s.Kind] = true
		if got := s.AppendTo(nil); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s (clause %s): decoded and encoded again\n%x, want\n%x", v.Name, v.Clause, got, v.Hex)
		}
		if got := want.AppendTo(nil); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s (clause %s): encoded\n%x, want\n%x", v.Name, v.Clause, got, v.Hex)
		}
		// Fields that mean nothing for the kind are left from the segment before.
		if s.Kind != want.Kind || s.Conn != want.Conn || s.Op != want.Op || s.Key != want.Key ||
			s.Place != want.Place || s.Size != want.Size || !bytes.Equal(s.Data, want.Data) {
			t.Errorf("%s (clause %s): decoded\n%+v, want\n%+v", v.Name, v.Clause, s, want)
		}
	}
	for k, l := range Layouts {
		if l.Fixed != 0 && !seen[Kind(k)] {
			t.Errorf("segment kind %d has no vector", k)
		}
	}
}

// The frames of docs/vectors/frames.json (clauses 2.2 to 2.5).
func TestVectorsOfFrames(t *testing.T) {
	for _, v := range vectors[struct {
		Name, Clause string
		Fields       struct {
			Type, Path, Flags uint8
			Session           uint32
			Packet            number
			Tail, Payload     octets
		}
		Hex octets
	}](t, "frames.json") {
		var f Frame
		if err := f.Decode(v.Hex); err != nil {
			t.Errorf("%s (clause %s): %v", v.Name, v.Clause, err)
			continue
		}
		want := v.Fields
		if uint8(f.Type) != want.Type || f.Path != want.Path || f.Flags != want.Flags || f.Session != want.Session ||
			f.PN != uint64(want.Packet) || !bytes.Equal(f.Tail, want.Tail) || !bytes.Equal(f.Payload, want.Payload) ||
			f.Flags&FlagPayloadSum != 0 && !f.PayloadIntact() {
			t.Errorf("%s (clause %s): decoded %+v", v.Name, v.Clause, f)
		}
		head := FixedLen
		got := make([]byte, FixedLen+BulkLen)
		if f.Flags&FlagBulk != 0 {
			head += BulkLen
			PutBulk(got[FixedLen:], &f.Bulk)
		}
		Finish(got, &f.Header, f.Tail)
		got = append(append(got[:head:head], f.Payload...), f.Tail...)
		if !bytes.Equal(got, v.Hex) {
			t.Errorf("%s (clause %s): encoded\n%x, want\n%x", v.Name, v.Clause, got, v.Hex)
		}
	}
}

// coded is what the bodies of set-up frames have in common.
type coded interface {
	Decode(b []byte) error
	AppendTo(b []byte) []byte
}

// retry has the encoder that only this test needs: a Retry is its cookie.
type retry struct{ Retry }

func (r *retry) AppendTo(b []byte) []byte { return append(b, r.Cookie...) }

// The bodies of docs/vectors/setup.json (clauses 4.1 to 4.6, 10.2 to 10.4).
func TestVectorsOfSetUp(t *testing.T) {
	type link struct {
		Link      uint8
		Slots     uint16
		Version   uint32
		MTU       uint32
		Datagrams bool
		Shuffle   uint16
		Address   octets
	}
	for _, v := range vectors[struct {
		Name, Clause, Body string
		Fields             struct {
			link
			Node, Cookie, Data, Name          octets
			Epoch                             number
			PeerEpoch                         number `json:"peer_epoch"`
			Flags, Shard, Last, Level, Status uint8
			Session, Doubted, Offset          uint32
			Links                             []link
		}
		Hex octets
	}](t, "setup.json") {
		f := v.Fields
		hello := Hello{Epoch: uint64(f.Epoch), Flags: f.Flags, Shard: f.Shard, Last: f.Last, Link: f.Link,
			RxSlots: f.Slots, MTU: f.MTU, Joins: f.Datagrams, Shuffle: f.Shuffle, Name: f.Name}
		copy(hello.Node[:], f.Node)
		params := Params{Epoch: uint64(f.Epoch), Session: f.Session, Previous: f.Doubted, Shard: f.Shard, Last: f.Last}
		for _, l := range f.Links {
			i := LinkInfo{Link: l.Link, RxSlots: l.Slots, Version: l.Version, MTU: l.MTU, Joins: l.Datagrams,
				Shuffle: l.Shuffle, Addr: frame.Ether([6]byte(l.Address))}
			params.Links = append(params.Links, i)
		}
		pair := map[string][2]coded{
			"Hello": {&hello, &Hello{}},
			"Init": {&Init{Hello: hello, Session: f.Session, PeerEpoch: uint64(f.PeerEpoch), Cookie: f.Cookie},
				&Init{}},
			"Retry": {&retry{Retry{Cookie: f.Cookie}}, &retry{}},
			"Reset": {&Reset{Session: f.Session, Epoch: uint64(f.Epoch)}, &Reset{}},
			"Crypto": {&Crypto{Flags: f.Flags, Level: f.Level, Status: f.Status, Offset: f.Offset, Data: f.Data},
				&Crypto{}},
			"Params": {&params, &Params{}},
		}[v.Body]
		if pair[0] == nil {
			t.Fatalf("%s: there is no body %q", v.Name, v.Body)
		}
		if got := pair[0].AppendTo(nil); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s (clause %s): encoded\n%x, want\n%x", v.Name, v.Clause, got, v.Hex)
		}
		if err := pair[1].Decode(v.Hex); err != nil {
			t.Errorf("%s (clause %s): %v", v.Name, v.Clause, err)
		} else if got := pair[1].AppendTo(nil); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s (clause %s): decoded and encoded again\n%x, want\n%x", v.Name, v.Clause, got, v.Hex)
		}
	}
}
