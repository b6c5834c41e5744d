package workload

import (
	"bytes"
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
