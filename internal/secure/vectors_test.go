package secure

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"multiedge/internal/wire"
)

// octets is a byte string of a vector: hexadecimal, in which blanks separate fields.
type octets []byte

func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = hex.DecodeString(strings.ReplaceAll(string(text), " ", ""))
	return err
}

func vectors(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("../../docs/vectors/" + name)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(name, ": ", err)
	}
}

// The frames of docs/vectors/sealed.json (clauses 10.5 and 10.6).
func TestVectorsOfSealedFrames(t *testing.T) {
	var list []struct {
		Name, Clause                string
		Secret, Clear, Payload, Hex octets
		Path                        uint8
		Packet                      uint64
	}
	vectors(t, "sealed.json", &list)
	if len(list) != 2 {
		t.Fatalf("%d frames, want one of each form", len(list))
	}
	for _, v := range list {
		secret := Secret(v.Secret)
		s, o := NewSealer(&secret), NewOpener(&secret)
		frame := append(make([]byte, 0, 1024), v.Clear...)
		var got, opened []byte
		want, ok := v.Clear, false
		if scratch := make([]byte, 1024); v.Payload == nil {
			got = s.Seal(frame, v.Path, v.Packet)
			opened, ok = o.Open(new(Nonce), scratch, v.Hex, 1, v.Path, v.Packet)
		} else {
			const head = wire.FixedLen + wire.BulkLen
			got = s.SealParts(frame, v.Payload, v.Path, v.Packet)
			opened, ok = o.OpenParts(new(Nonce), scratch, v.Hex, head, 1, v.Path, v.Packet)
			want = slices.Concat(v.Clear[:head], v.Payload, v.Clear[head:])
		}
		if !bytes.Equal(got, v.Hex) {
			t.Errorf("%s (clause %s): sealed\n%x, want\n%x", v.Name, v.Clause, got, v.Hex)
		}
		if !ok || !bytes.Equal(opened, want) {
			t.Errorf("%s (clause %s): opened %v\n%x, want\n%x", v.Name, v.Clause, ok, opened, want)
		}
	}
}

// docs/vectors/keys.json: a node's identity (clause 10.1), and the secret after an exchange (clause 10.6).
func TestVectorsOfKeys(t *testing.T) {
	var v struct {
		Fresh struct {
			Secret, Next octets
			PrivateA     octets `json:"private_a"`
			PublicA      octets `json:"public_a"`
			PublicB      octets `json:"public_b"`
		}
		Identity struct{ Private, Public, Node octets }
	}
	vectors(t, "keys.json", &v)
	public := PrivateKey(v.Identity.Private).Public()
	if node := public.Node(); !bytes.Equal(public[:], v.Identity.Public) || !bytes.Equal(node[:], v.Identity.Node) {
		t.Errorf("public key %x, node %x; want %x and %x", public[:], node, v.Identity.Public, v.Identity.Node)
	}
	secret := Secret(v.Fresh.Secret)
	x := &Exchange{Public: [PublicLen]byte(v.Fresh.PublicA), private: [PublicLen]byte(v.Fresh.PrivateA)}
	theirs := [PublicLen]byte(v.Fresh.PublicB)
	w, r, err := x.Next(PresentOf(NewSealer(&secret), NewOpener(&secret)), &theirs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w.secret[:], v.Fresh.Next) || !bytes.Equal(r.secret[:], v.Fresh.Next) {
		t.Errorf("next secrets %x and %x, want %x", w.secret, r.secret, v.Fresh.Next)
	}
}
