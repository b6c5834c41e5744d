package ipc

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Rings have all their pages before a client gets them: none can be lacking when it is first used.
func TestRingsHaveTheirPages(t *testing.T) {
	l, err := LayoutFor(1024)
	must(t, err)
	r, fd, err := CreateRings(l)
	must(t, err)
	defer r.Close()
	defer unix.Close(fd)
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if st.Blocks*512 != int64(l.Size()) {
		t.Errorf("%d of %d bytes are there", st.Blocks*512, l.Size())
	}
}
