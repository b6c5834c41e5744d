package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"multiedge/internal/config"

	"golang.org/x/sys/unix"
)

// heapEra is a client that grants memory where it is (feature bit 10).
var heapEra = era{name: "heap", lowest: 2, highest: 2, features: 1 << 10, wanted: 1 << 10, sqe: 64, cqe: 32, room: 2048}

// heapRequest is register with HEAP (A5.3).
func heapRequest(addr, size uint64, flags uint32) []byte {
	b := packet(40, 2)
	le.PutUint64(b[16:], size)
	le.PutUint32(b[24:], flags)
	le.PutUint64(b[32:], addr)
	return b
}

// badRanges asks for ranges that no process has.
func badRanges() map[string][]byte {
	return map[string][]byte{
		"no bytes":             heapRequest(1<<30, 0, 2),
		"too many":             heapRequest(0, 1<<46+1, 2),
		"the kernel's half":    heapRequest(0xffff_8000_0000_0000, 4096, 2),
		"beyond a process":     heapRequest(1<<56-4095, 4096, 2),
		"past the last number": heapRequest(^uint64(0)-10, 4096, 2),
		"a wrapping size":      heapRequest(4096, ^uint64(0)-100, 2),
		"two kinds at once":    heapRequest(1<<30, 4096, 3),
	}
}

// openFD returns a descriptor that is closed with the test.
func openFD(t *testing.T, name string, flags int) int {
	t.Helper()
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestABIHeapDescriptors: only the memory of the client's own process is taken, only ranges that a process can have,
// and refusals leave nothing behind (A7.19).
func TestABIHeapDescriptors(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := connectABI(t, a, heapEra)
	c.hello()
	ask := func(b []byte, fds ...int) (region, status uint32, text string) {
		r, _, status, text := c.reply(c.send(b, fds...), 2)
		return le.Uint32(r[24:]), status, text
	}
	other := exec.Command("sleep", "1000")
	must(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	memfd, err := unix.MemfdCreate("mem", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(memfd)
	file := t.TempDir() + "/mem"
	must(t, os.WriteFile(file, make([]byte, 4096), 0o600))
	var pipe [2]int
	must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	mine := openFD(t, "/proc/self/mem", unix.O_RDWR)
	charged := func() uint64 { n, _ := a.d.accounts.Charged(); return n }
	rest := charged()
	for what, fd := range map[string]int{
		"a file":                 openFD(t, file, unix.O_RDWR),
		"a memfd":                memfd,
		"a directory":            openFD(t, t.TempDir(), unix.O_RDONLY),
		"a directory of /proc":   openFD(t, "/proc/self", unix.O_RDONLY),
		"a pipe":                 pipe[1],
		"a device":               openFD(t, "/dev/zero", unix.O_RDWR),
		"another process":        openFD(t, fmt.Sprintf("/proc/%d/mem", other.Process.Pid), unix.O_RDWR),
		"another file of /proc":  openFD(t, "/proc/self/oom_score_adj", unix.O_RDWR),
		"memory of a thread":     openFD(t, "/proc/thread-self/mem", unix.O_RDWR),
		"open for reading alone": openFD(t, "/proc/self/mem", unix.O_RDONLY),
		"open for writing alone": openFD(t, "/proc/self/mem", unix.O_WRONLY),
		"a name":                 openFD(t, "/proc/self/mem", unix.O_PATH),
		"the socket":             c.fd,
	} {
		if _, status, text := ask(heapRequest(1<<30, 4096, 2), fd); status != 256 ||
			!strings.Contains(text, "not the memory of that process") {
			t.Errorf("%s: %d, %q", what, status, text)
		}
	}
	for what, b := range badRanges() {
		if _, status, text := ask(b, mine); status != 256 {
			t.Errorf("%s: %d, %q", what, status, text)
		}
	}
	if _, status, text := ask(heapRequest(1<<30, 4096, 2)); status != 256 || !strings.Contains(text, "/proc/self/mem") {
		t.Errorf("without a descriptor: %d, %q", status, text)
	}
	if _, status, _ := ask(heapRequest(0, 4096, 1), mine); status != 256 {
		t.Errorf("memory of its own without that feature: %d", status)
	}
	files := openFiles(t)
	region, status, text := ask(heapRequest(4096, 1<<46, 2), mine)
	if status != 0 {
		t.Fatalf("%d, %q", status, text)
	}
	if _, status, _ := ask(heapRequest(0, 1, 2), mine); status != 0 {
		t.Errorf("a second range: %d", status)
	}
	c.call(conn32(24, 4, region))
	unix.Close(c.fd)
	c.fd = -1
	until(t, "everything is given back", deadline, func() bool { return charged() < rest && openFiles(t) < files })
	if n := len(a.d.pins.couriers.of); n != 0 || a.d.pins.couriers.all != 0 {
		t.Errorf("%d users have couriers", n)
	}
}

// TestABIHeapCouriers: a user has only so many threads of the daemon's.
func TestABIHeapCouriers(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Couriers = 16 })
	mine := openFD(t, "/proc/self/mem", unix.O_RDWR)
	ask := func() (status uint32, text string) {
		c := connectABI(t, a, heapEra)
		c.hello()
		_, _, status, text = c.reply(c.send(heapRequest(4096, 4096, 2), mine), 2)
		return status, text
	}
	for i := range 2 {
		if status, text := ask(); status != 0 {
			t.Fatalf("process %d: %d, %q", i, status, text)
		}
	}
	if status, text := ask(); status != 10 || !strings.Contains(text, "2 processes of user") {
		t.Errorf("one more: %d, %q", status, text)
	}
	a, _ = nodes(t, 1, nil)
	limits := a.d.accounts.Admitted()
	limits.Couriers = 0
	a.d.accounts.setLimits(limits)
	if status, text := ask(); status != 263 || !strings.Contains(text, "limits.couriers") {
		t.Errorf("none are allowed: %d, %q", status, text)
	}
}
