package regmem

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// offered returns memory and its mapping by another process, which here is the same.
func offered(t *testing.T, size int) (mem, theirs *Memory) {
	t.Helper()
	mem, err := Alloc(size, Offered())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	fd, err := unix.Dup(mem.FD())
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = Map(fd, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return mem, theirs
}

// What was offered and fixed stays as it was paid for: whoever has it can write to it by the mapping made before, and
// can do nothing else to it.
func TestFix(t *testing.T) {
	const size = 64 << 10
	before := Pinned()
	mem, theirs := offered(t, size)
	if mem.Pinned() || Pinned() != before {
		t.Error("offered memory is pinned already")
	}
	punch := func() error {
		return unix.Fallocate(theirs.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
	}
	if err := punch(); err != nil { // which is why it is not pinned yet
		t.Fatal(err)
	}
	if err := mem.Fix(); err != nil {
		t.Fatal(err)
	}
	if !mem.Pinned() || Pinned() != before+size || mem.FD() >= 0 {
		t.Errorf("pinned %t, %d bytes, descriptor %d", mem.Pinned(), Pinned()-before, mem.FD())
	}
	theirs.Bytes()[5] = 1
	mem.Bytes()[6] = 2
	if mem.Bytes()[5] != 1 || theirs.Bytes()[6] != 2 {
		t.Error("the two do not share it")
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"a hole", punch},
		{"a range of zeros", func() error { return unix.Fallocate(theirs.FD(), unix.FALLOC_FL_ZERO_RANGE, 0, size) }},
		{"a hole by the mapping", func() error { return unix.Madvise(theirs.Bytes(), unix.MADV_REMOVE) }},
		{"write", func() error { _, err := unix.Pwrite(theirs.FD(), []byte{1}, 0); return err }},
		{"another mapping to write by", func() error {
			_, err := unix.Mmap(theirs.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			return err
		}},
		{"another size", func() error { return unix.Ftruncate(theirs.FD(), 2*size) }},
		{"another seal", func() error {
			_, err := unix.FcntlInt(uintptr(theirs.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
			return err
		}},
	} {
		if err := c.do(); err == nil {
			t.Errorf("%s is possible", c.name)
		}
	}
	if mem.Bytes()[5] != 1 {
		t.Error("the bytes are gone")
	}
	var st unix.Stat_t
	if err := unix.Fstat(theirs.FD(), &st); err != nil || st.Blocks*512 != size {
		t.Errorf("%d of %d bytes have pages, %v", st.Blocks*512, size, err)
	}
	if err := mem.Fix(); err == nil {
		t.Error("fixed twice")
	}
	if err := mem.Close(); err != nil || Pinned() != before {
		t.Errorf("%v, %d bytes left pinned", err, Pinned()-before)
	}
	if err := mem.Fix(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A process that was offered memory and seals it otherwise gets an error, and nothing stays pinned.
func TestFixSpoilt(t *testing.T) {
	before := Pinned()
	mem, theirs := offered(t, 4096)
	if _, err := unix.FcntlInt(uintptr(theirs.FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	if err := mem.Fix(); !errors.Is(err, ErrSeals) || mem.Pinned() || Pinned() != before {
		t.Errorf("%v, pinned %t", err, mem.Pinned())
	}
}
