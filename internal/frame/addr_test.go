package frame

import (
	"bytes"
	"testing"
)

func TestAddr(t *testing.T) {
	a, b := Ether([6]byte{2, 0, 0, 0, 1, 10}), Ether([6]byte{2, 0, 0, 0, 1, 11})
	if a == b || !bytes.Equal(a.AppendTo(nil), []byte{2, 0, 0, 0, 1, 10}) || a.String() != "02:00:00:00:01:0a" {
		t.Errorf("%v, %v", a, b)
	}
	if none := (Addr{}); none.Known() || !a.Known() || !Broadcast.Known() {
		t.Error("only the zero address is none")
	}
}

func TestHeader(t *testing.T) {
	f, from, to := EtherFraming(0x88b5), Ether([6]byte{2, 0, 0, 0, 0, 1}), Ether([6]byte{2, 0, 0, 0, 0, 2})
	h := make([]byte, HeaderLen+1)
	f.PutHeader(h, &from, &to)
	if want := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 0}; !bytes.Equal(h, want) {
		t.Errorf("header % x, want % x", h, want)
	}
	if From(h) != from || !f.Has(h) || f.Has(h[:HeaderLen-1]) || EtherFraming(0x88b6).Has(h) {
		t.Error("the header is not found again")
	}
}
