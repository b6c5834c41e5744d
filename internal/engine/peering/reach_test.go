package peering

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// The proof of clause 21.3 in docs/vectors/keys.json.
func TestVectorOfInitProof(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "vectors", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Init struct{ Public, Body, Proof string }
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	public, err1 := hex.DecodeString(v.Init.Public)
	body, err2 := hex.DecodeString(v.Init.Body)
	var in wire.Init
	if err1 != nil || err2 != nil || len(public) != len(secure.PublicKey{}) || in.Decode(body) != nil ||
		len(in.Name) > 0 {
		t.Fatalf("%v, %v, %+v", err1, err2, v)
	}
	if got := hex.EncodeToString(InitProof(secure.PublicKey(public), body)); got != v.Init.Proof {
		t.Errorf("the proof is %s, want %s", got, v.Init.Proof)
	}
}
