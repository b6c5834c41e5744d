package faults

import (
	"encoding/binary"
	"testing"
)

// An addition that is performed twice, or not at all, and one that finds what another found, are reported.
func TestCounterIsExact(t *testing.T) {
	for _, c := range []struct {
		name   string
		value  uint64
		found  []uint64
		failed uint64
		want   string
	}{
		{"as it should be", 3, []uint64{0, 2, 1}, 0, Pass},
		{"one performed twice", 4, []uint64{0, 2, 1}, 0, Fail},
		{"one lost", 2, []uint64{0, 2, 1}, 0, Fail},
		{"two found the same", 3, []uint64{0, 1, 1}, 0, Fail},
		{"one failed, and may have been performed", 4, []uint64{0, 2, 1}, 1, Pass},
		{"one failed, and was performed twice", 5, []uint64{0, 2, 1}, 1, Fail},
		{"one found what nobody made", 3, []uint64{0, 1, 7}, 0, Fail},
	} {
		tr := &Trial{row: newRow(&Scenario{})}
		mem := binary.NativeEndian.AppendUint64(nil, c.value)
		tr.exact(&counter{memory: mem, found: c.found, failed: map[string]uint64{"peer-down": c.failed}})
		if tr.row.close(); tr.row.Verdict != c.want {
			t.Errorf("%s: %s, %v", c.name, tr.row.Verdict, tr.row.Reasons())
		}
	}
}
