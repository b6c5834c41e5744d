package linktest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"testing"
	"time"

	"multiedge/linkdrv"
)

func TestTap(t *testing.T) {
	a, b := Pair(64, 8)
	var file bytes.Buffer
	tap := Tap(a, &file)
	at := time.Unix(0x01020304, 0x0a0b0c)
	tap.Now = func() time.Time { at = at.Add(time.Nanosecond); return at }
	frames := numbered(7, 1, 20)
	frames = append(frames, linkdrv.TxFrame{Head: make([]byte, 100)}) // refused, hence not recorded
	if n, err := tap.Send(frames); n != 2 || !errors.Is(err, linkdrv.ErrTooLong) {
		t.Fatal(n, err)
	}
	b.Send(numbered(9, 1, 18))
	if got := drain(t, tap); len(got) != 1 {
		t.Fatal(got)
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	want := "4d3cb2a1" + "0200" + "0400" + "00000000" + "00000000" + "00000400" + "01000000" +
		"04030201" + "0d0b0a00" + "14000000" + "14000000" + "00000000000000000000000088b5" + "000000070000" +
		"04030201" + "0e0b0a00" + "12000000" + "12000000" + "00000000000000000000000088b5" + "00000009"
	if got := hex.EncodeToString(file.Bytes()); got != want {
		t.Errorf("file is\n%s, want\n%s", got, want)
	}
}

func TestTapReportsWriteErrors(t *testing.T) {
	a, _ := Pair(64, 8)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	if err := Tap(a, w).Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close = %v", err)
	}
}
