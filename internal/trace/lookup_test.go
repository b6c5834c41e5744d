package trace

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzLookup: what is taken for a lookup lies in its region, and is what Append would have written.
func FuzzLookup(f *testing.F) {
	good := Lookup{PID: 77, Region: 0x10002, Size: 1 << 36, Off: 1 << 35, Len: 8192, Site: 3}
	f.Add(good.Append(nil))
	f.Add((&Lookup{Size: 8, Len: 8}).Append(nil))
	f.Add((&Lookup{Size: 8, Off: 1, Len: 8}).Append(nil))
	f.Add((&Lookup{Size: 8, Off: 9, Len: 8}).Append(nil))
	f.Add((&Lookup{Size: 8, Len: 8, Site: 4}).Append(nil))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLookup(b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		if l.Len == 0 || l.Off+uint64(l.Len) > l.Size || !bytes.Equal(l.Append(nil), b) {
			t.Fatalf("%+v of % x", l, b)
		}
	})
}

func TestLookup(t *testing.T) {
	want := Lookup{PID: -1, Region: 1<<32 - 1, Size: 1 << 47, Off: 1<<47 - 5, Len: 5, Site: 2}
	if got, err := ParseLookup(want.Append(nil)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}
