package regmem

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"
)

// mapped returns how many pages of b this process has mapped.
func mapped(t *testing.T, b []byte) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := make([]byte, len(b)/pageSize*8)
	if _, err := f.ReadAt(entries, int64(uintptr(unsafe.Pointer(&b[0])))/int64(pageSize)*8); err != nil {
		t.Fatal(err)
	}
	for ; len(entries) > 0; entries = entries[8:] {
		if binary.LittleEndian.Uint64(entries)>>63 != 0 {
			n++
		}
	}
	return n
}

// Memory of up to lateMost has its pages when it is fixed, and each is mapped when it is used; longer memory is mapped
// at once. All of it counts as locked.
func TestFixLate(t *testing.T) {
	defer leakCheck(t)()
	for _, size := range []int{pageSize, lateMost, lateMost + pageSize} {
		m := mustAlloc(t, size, Offered())
		before, err := holding()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Fix(); err != nil {
			t.Fatal(err)
		}
		after, err := holding()
		if err != nil || after.locked-before.locked != uint64(size) || after.pinned-before.pinned != int64(size) {
			t.Errorf("%d bytes: locked %d, pinned %d more (%v)", size, after.locked-before.locked,
				after.pinned-before.pinned, err)
		}
		all := size / pageSize
		late := size <= lateMost && !Swaps()
		if n := mapped(t, m.Bytes()); n != all && !late || n != 0 && late {
			t.Errorf("%d of %d pages are mapped", n, all)
		}
		m.Bytes()[size-1] = 1
		if n := mapped(t, m.Bytes()); late && n != 1 {
			t.Errorf("%d pages are mapped when one was used", n)
		}
		if m.Bytes()[0] != 0 {
			t.Error("it is not zero")
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
