package regmem

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// held is what this process keeps of memory from this package.
type held struct {
	fds, maps int
	locked    uint64 // bytes, by the kernel's count
	pinned    int64  // bytes, by ours
}

func holding() (h held, err error) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return h, err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return h, err
	}
	locked, ok := procBytes("/proc/self/status", "VmLck:")
	if !ok {
		return h, errors.New("no VmLck in /proc/self/status")
	}
	return held{len(fds), bytes.Count(maps, []byte("/memfd:")), locked, Pinned()}, nil
}

// leakCheck returns a function to be deferred.
func leakCheck(t *testing.T) func() {
	t.Helper()
	before, err := holding()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if after, err := holding(); err != nil || after != before {
			t.Errorf("left behind: %+v, before it was %+v (%v)", after, before, err)
		}
	}
}

func mustAlloc(t *testing.T, size int, opts ...Option) *Memory {
	t.Helper()
	m, err := Alloc(size, opts...)
	if err != nil {
		t.Fatalf("Alloc(%d): %v", size, err)
	}
	return m
}

func TestAlloc(t *testing.T) {
	defer leakCheck(t)()
	page := os.Getpagesize()
	for _, c := range []struct{ size, want int }{{1, page}, {page, page}, {page + 1, 2 * page}, {1 << 20, 1 << 20}} {
		before, err := holding()
		if err != nil {
			t.Fatal(err)
		}
		m := mustAlloc(t, c.size)
		if m.Len() != c.want || len(m.Bytes()) != c.want || cap(m.Bytes()) != c.want || m.FD() < 0 || !m.Pinned() {
			t.Errorf("Alloc(%d): Len %d, FD %d, Pinned %t", c.size, m.Len(), m.FD(), m.Pinned())
		}
		if i := bytes.IndexFunc(m.Bytes(), func(r rune) bool { return r != 0 }); i >= 0 {
			t.Errorf("byte %d is not zero", i)
		}
		now, err := holding()
		want := held{before.fds + 1, before.maps + 1, before.locked + uint64(c.want), before.pinned + int64(c.want)}
		if err != nil || now != want {
			t.Errorf("holding %+v, want %+v (%v)", now, want, err)
		}
		for range 2 {
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if m.Bytes() != nil || m.Len() != 0 || m.FD() != -1 || m.Pinned() {
			t.Error("closed memory still has something")
		}
		if err := m.Pin(); !errors.Is(err, ErrClosed) {
			t.Errorf("Pin after Close: %v", err)
		}
		if err := m.Unpin(); !errors.Is(err, ErrClosed) {
			t.Errorf("Unpin after Close: %v", err)
		}
	}
}

func TestAllocImpossibleSizes(t *testing.T) {
	defer leakCheck(t)()
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt, math.MaxInt - 4096, 1 << 62, 1 << 47} {
		for _, opts := range [][]Option{nil, {Unpinned()}} {
			m, err := Alloc(size, opts...)
			if m != nil || !errors.Is(err, ErrSize) {
				t.Errorf("Alloc(%d), %d options: %v, want ErrSize", size, len(opts), err)
			}
		}
	}
	// More than any machine that runs this has, but not more than it can address.
	if _, err := Alloc(1 << 45); !errors.Is(err, ErrSize) || !strings.Contains(err.Error(), "available") {
		t.Errorf("Alloc of 32 TiB: %v", err)
	}
}

func TestAllocNameRefused(t *testing.T) {
	defer leakCheck(t)()
	if _, err := Alloc(4096, Named(strings.Repeat("x", 300))); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a name of 300 bytes: %v, want EINVAL", err)
	}
	m := mustAlloc(t, 4096, Named("ring"))
	defer m.Close()
	if s, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.FD())); err != nil || !strings.HasPrefix(s,
		"/memfd:ring") {
		t.Errorf("name %q, %v", s, err)
	}
}

func TestPinUnpin(t *testing.T) {
	defer leakCheck(t)()
	m := mustAlloc(t, 64<<10, Unpinned())
	defer m.Close()
	copy(m.Bytes(), "kept")
	for _, step := range []struct {
		do   func() error
		want bool
	}{{m.Unpin, false}, {m.Pin, true}, {m.Pin, true}, {m.Unpin, false}, {m.Unpin, false}, {m.Pin, true}} {
		before := Pinned()
		was := m.Pinned()
		if err := step.do(); err != nil || m.Pinned() != step.want {
			t.Fatalf("%v, pinned %t, want %t", err, m.Pinned(), step.want)
		}
		change := int64(0)
		if step.want != was {
			change = int64(m.Len())
			if was {
				change = -change
			}
		}
		if got := Pinned() - before; got != change {
			t.Errorf("Pinned() changed by %d, want %d", got, change)
		}
	}
	if string(m.Bytes()[:4]) != "kept" {
		t.Error("contents lost")
	}
	w := Wrap(make([]byte, 4096))
	if err := w.Pin(); err == nil || w.Unpin() != nil || w.FD() != -1 || w.Close() != nil {
		t.Error("wrapped bytes were pinned, or could not be closed")
	}
}

// A lock that fails half way, here because half of the pages are not there to be had, leaves nothing locked.
func TestPinHalfWay(t *testing.T) {
	defer leakCheck(t)()
	fd, err := unix.MemfdCreate("half", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 64<<10); err != nil {
		t.Fatal(err)
	}
	m, err := mapShared(fd, 128<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before, _ := holding()
	if err := m.Pin(); !errors.Is(err, unix.ENOMEM) || errors.Is(err, ErrMemlock) || m.Pinned() {
		t.Errorf("Pin: %v, pinned %t; want ENOMEM, and not because of the limit", err, m.Pinned())
	}
	if after, err := holding(); err != nil || after != before {
		t.Errorf("after it %+v, before it %+v (%v)", after, before, err)
	}
}

// Nobody who holds the descriptor can change the size; punching a hole only zeroes.
func TestSealed(t *testing.T) {
	defer leakCheck(t)()
	m := mustAlloc(t, 8192)
	defer m.Close()
	for _, size := range []int64{0, 4096, 16384} {
		if err := unix.Ftruncate(m.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncated to %d: %v, want EPERM", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(m.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err,
		unix.EPERM) {
		t.Errorf("seal added: %v, want EPERM", err)
	}
	copy(m.Bytes(), "gone")
	if err := unix.Fallocate(m.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8192); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Bytes(), make([]byte, 8192)) {
		t.Error("a punched hole is not zero")
	}
	copy(m.Bytes(), "back")
	flags, err := unix.FcntlInt(uintptr(m.FD()), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor survives exec: flags %#x, %v", flags, err)
	}
}

func TestMap(t *testing.T) {
	defer leakCheck(t)()
	m := mustAlloc(t, 8000)
	defer m.Close()
	for _, size := range []int{m.Len(), 8000} { // rounded like Alloc's
		fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0) // as if passed over a socket
		if err != nil {
			t.Fatal(err)
		}
		o, err := Map(fd, size)
		if err != nil {
			t.Fatal(err)
		}
		if o.FD() != fd || o.Len() != m.Len() || o.Pinned() {
			t.Errorf("Map: FD %d, Len %d, Pinned %t", o.FD(), o.Len(), o.Pinned())
		}
		copy(m.Bytes()[8000:], "there")
		copy(o.Bytes(), "back")
		if string(o.Bytes()[8000:8005]) != "there" || string(m.Bytes()[:4]) != "back" {
			t.Error("the memory is not shared")
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if string(m.Bytes()[:4]) != "back" {
		t.Error("closing one side took the other's")
	}
}

func TestMapRefuses(t *testing.T) {
	defer leakCheck(t)()
	good := mustAlloc(t, 8192)
	defer good.Close()
	memfd := func(size int64, flags, seal int) int {
		fd, err := unix.MemfdCreate("test", flags|unix.MFD_CLOEXEC)
		if err == nil {
			err = unix.Ftruncate(fd, size)
		}
		if err == nil && seal != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	open := func(name string, flags int) int {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	const seals = sizeSeals | sealSeals
	for _, c := range []struct {
		name string
		fd   int
		size int
		want error
	}{
		{"zero size", memfd(8192, unix.MFD_ALLOW_SEALING, seals), 0, ErrSize},
		{"negative size", memfd(8192, unix.MFD_ALLOW_SEALING, seals), -8192, ErrSize},
		{"too long", memfd(8192, unix.MFD_ALLOW_SEALING, seals), 4096, ErrSeals},
		{"too short", memfd(8192, unix.MFD_ALLOW_SEALING, seals), 12288, ErrSeals},
		{"not whole pages", memfd(8000, unix.MFD_ALLOW_SEALING, seals), 8000, ErrSeals},
		{"not sealed", memfd(8192, unix.MFD_ALLOW_SEALING, 0), 8192, ErrSeals},
		{"can shrink", memfd(8192, unix.MFD_ALLOW_SEALING, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), 8192, ErrSeals},
		{"can grow", memfd(8192, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL), 8192, ErrSeals},
		{"cannot be sealed", memfd(8192, 0, 0), 8192, ErrSeals},
		{"no writing", memfd(8192, unix.MFD_ALLOW_SEALING, seals|unix.F_SEAL_WRITE), 8192, unix.EPERM},
		{"opened read-only", open(fmt.Sprintf("/proc/self/fd/%d", good.FD()), unix.O_RDONLY), 8192, unix.EACCES},
		{"a file", open(filepath.Join(t.TempDir(), "file"), unix.O_RDWR|unix.O_CREAT), 8192, ErrSeals},
		{"a device", open("/dev/zero", unix.O_RDWR), 8192, ErrSeals},
	} {
		if m, err := Map(c.fd, c.size); m != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err := unix.Close(c.fd); err != nil {
			t.Errorf("%s: the descriptor is no longer the caller's: %v", c.name, err)
		}
	}
	if _, err := Map(-1, 8192); !errors.Is(err, ErrSeals) || !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: %v", err)
	}
}
