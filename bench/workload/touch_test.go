package workload

import (
	"bytes"
	"os"
	"testing"

	"multiedge/bench/bytestream"
)

// Regions have what touching leaves in them, in every page.
func TestRegionsAreTouched(t *testing.T) {
	a := world(t)
	d, err := a.Open(t.Context())
	must(t, err)
	defer d.Close()
	r, err := register(d, memory{source: true, target: true}, minRegion)
	must(t, err)
	want := make([]byte, minRegion)
	bytestream.Touch(want)
	if !bytes.Equal(r.source.Bytes(), want) || !bytes.Equal(r.target.Bytes(), want) {
		t.Error("regions are as they were made")
	}
	must(t, r.close())
}

func TestMinorFaults(t *testing.T) {
	before := minorFaults(os.Getpid())
	m, err := bytestream.Untouched(4 << 20)
	must(t, err)
	defer bytestream.Free(m)
	bytestream.Touch(m)
	// huge pages where the machine gives them unasked
	if n := minorFaults(os.Getpid()) - before; n < 2 {
		t.Errorf("%d page faults of 1024 new pages", n)
	}
	if n := minorFaults(1 << 30); n != 0 {
		t.Errorf("%d page faults of a process that does not exist", n)
	}
	if n := minorFaultsOf("12 (a ) b) S 1 2 3 4 5 6 77 8"); n != 77 {
		t.Errorf("%d, want 77", n)
	}
}
