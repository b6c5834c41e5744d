package daemon

import (
	"strings"
	"testing"

	"multiedge/internal/config"

	"golang.org/x/sys/unix"
)

// TestABIOwnMemory: memory of the client's own is taken only as A7.5 has it, is charged, cannot be punched afterwards,
// and leaves nothing behind when it is refused.
func TestABIOwnMemory(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Pinned = 1 << 20 })
	c := connectABI(t, a, eras[2])
	c.hello()
	const size, good = 64 << 10, unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	ask := func(size uint64, fd int) (region, status uint32, text string) {
		b := packet(32, 2)
		le.PutUint64(b[16:], size)
		le.PutUint32(b[24:], 1)
		r, _, status, text := c.reply(c.send(b, fd), 2)
		return le.Uint32(r[24:]), status, text
	}
	if _, _, status, _ := c.reply(c.send(conn32(24, 4, 0)), 4); status == 0 { // by now it has closed what hello sent
		t.Error("a region that is none was deregistered")
	}
	before, charged := openFiles(t), func() uint64 { n, _ := a.d.accounts.Charged(); return n }
	rest := charged()
	var pipe [2]int
	must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	for _, r := range []struct {
		what         string
		asked, real  int
		seals, flags int
		status       uint32
		says         string
	}{
		{"no seals", size, size, 0, 0, 256, "F_SEAL_GROW"},
		{"shrinks", size, size, unix.F_SEAL_GROW, 0, 256, "F_SEAL_SHRINK"},
		{"cannot be written", size, size, good | unix.F_SEAL_FUTURE_WRITE, 0, 256, "nothing else"},
		{"sealed for good", size, size, good | unix.F_SEAL_SEAL, 0, 256, "nothing else"},
		{"smaller than it says", 2 * size, size, good, 0, 256, "65536"},
		{"larger than it says", size, 2 * size, good, 0, 256, "131072"},
		{"no whole pages", size - 1, size, good, 0, 256, "whole pages"},
		{"beyond the quota", 2 << 20, 2 << 20, good, 0, 10, "limits.pinned"},
	} {
		fd, _ := c.memfd(r.real, r.seals, r.flags)
		if _, status, text := ask(uint64(r.asked), fd); status != r.status || !strings.Contains(text, r.says) {
			t.Errorf("%s: %d, %q", r.what, status, text)
		}
		unix.Close(fd)
	}
	if _, status, text := ask(size, pipe[0]); status != 256 || !strings.Contains(text, "no memfd") {
		t.Errorf("a pipe: %d, %q", status, text)
	}
	unix.Close(pipe[0])
	unix.Close(pipe[1])
	if now := charged(); now != rest {
		t.Errorf("refusals left %d bytes charged", now-rest)
	}
	fd, mem := c.memfd(size, good, 0)
	mem[size-1] = 7
	region, status, text := ask(size, fd)
	if status != 0 {
		t.Fatalf("%d, %q", status, text)
	}
	if now := charged(); now != rest+size {
		t.Errorf("%d bytes charged", now-rest)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != unix.EPERM {
		t.Errorf("punching: %v", err)
	}
	if err := unix.Madvise(mem, unix.MADV_REMOVE); err != unix.EPERM {
		t.Errorf("removing: %v", err)
	}
	if mem[size-1] != 7 {
		t.Error("what was there is gone")
	}
	if _, status, _ := ask(size, fd); status != 256 {
		t.Errorf("a second time: %d", status)
	}
	unix.Close(fd)
	c.call(conn32(24, 4, region))
	if now := charged(); now != rest {
		t.Errorf("%d bytes are left charged", now-rest)
	}
	until(t, "descriptors are closed", deadline, func() bool { return openFiles(t) == before })
}

// TestABIUnwantedDescriptors: what a request may not bring ends the attachment, and nothing is left open (A3.9).
func TestABIUnwantedDescriptors(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	for _, with := range []struct {
		kind uint16
		n    int
	}{{6, 1}, {2, 2}, {2, 3}, {99, 1}} {
		c := connectABI(t, a, eras[2])
		c.hello()
		before := openFiles(t)
		b := packet(88, with.kind)
		le.PutUint32(b[24:], 1)
		c.send(b, []int{c.fd, c.fd, c.fd}[:with.n]...)
		if n, _, err := unix.Recvfrom(c.fd, make([]byte, 64), 0); n > 0 {
			t.Errorf("%+v: answered, %v", with, err)
		}
		until(t, "descriptors are closed", deadline, func() bool { return openFiles(t) <= before })
	}
	c := connectABI(t, a, eras[1])
	c.hello()
	b := packet(32, 2)
	le.PutUint32(b, 32)
	err := unix.Sendmsg(c.fd, b, unix.UnixRights(c.fd), nil, unix.MSG_NOSIGNAL)
	if n, _, _ := unix.Recvfrom(c.fd, make([]byte, 64), unix.MSG_DONTWAIT); err == nil && n > 0 {
		t.Error("a descriptor was taken without the feature")
	}
}
