package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/linkdrv"
)

// childMode selects what this test binary does when a test runs it again.
const childMode = "MULTIEDGE_LAB_TEST"

// childForce makes it start itself in a user namespace although it need not.
const childForce = "MULTIEDGE_LAB_TEST_RERUN"

func TestMain(m *testing.M) {
	if os.Getenv(childForce) != "" && !Unprivileged() {
		code, err := rerun()
		fmt.Fprint(os.Stderr, err)
		os.Exit(code)
	}
	if os.Getenv(childMode) == "bare" {
		child("bare")
		return
	}
	if err := EnsurePrivileges(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if mode := os.Getenv(childMode); mode != "" {
		child(mode)
		return
	}
	os.Exit(m.Run())
}

func build(t testing.TB, s Spec) *Lab {
	t.Helper()
	l, err := New(context.Background(), s)
	if err != nil {
		t.Fatalf("New(%+v): %v", s, err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// station is a packet socket on one host's interface.
type station struct {
	t   testing.TB
	drv linkdrv.Driver
	lab *Lab
	rx  [linkdrv.RecvBatch][]byte

	link, host int
}

func open(t testing.TB, l *Lab, link, host int) *station {
	t.Helper()
	s := &station{t: t, lab: l, link: link, host: host}
	err := l.Host(host).Do(func() (err error) {
		// at any MTU: tests send 40 at once, some twice, and a batch is held until the next Recv
		s.drv, err = linkdrv.Open(l.Host(host).LinkNames()[link], linkdrv.Options{RingSlots: 256})
		return err
	})
	must(t, err)
	t.Cleanup(func() { s.drv.Close() })
	return s
}

// frame makes a frame to another host with a number in it, twice, and zeros.
func (s *station) frame(to int, number uint64, size int) []byte {
	f := make([]byte, max(size, 30))
	copy(f, s.lab.Host(to).MAC(s.link))
	copy(f[6:], s.lab.Host(s.host).MAC(s.link))
	binary.BigEndian.PutUint16(f[12:], uint16(linkdrv.EtherType))
	binary.BigEndian.PutUint64(f[14:], number)
	binary.BigEndian.PutUint64(f[22:], number)
	return f
}

// send sends frames numbered from first on, of the given size with header.
func (s *station) send(to int, first, n, size int) {
	s.t.Helper()
	for i := range n {
		batch := []linkdrv.TxFrame{{Head: s.frame(to, uint64(first+i), size)}}
		if k, err := s.drv.Send(batch); k != 1 || err != nil {
			s.t.Fatalf("frame %d of %d bytes on link %d: sent %d, %v", first+i, size, s.link, k, err)
		}
	}
}

// receive calls fn for each frame until the batch in which it returns false is done; false if no frame comes for so
// long.
func (s *station) receive(patience time.Duration, fn func(f []byte) bool) bool {
	s.t.Helper()
	for {
		n, err := s.drv.Recv(s.rx[:])
		if err != nil {
			s.t.Fatal(err)
		}
		more := true
		for _, f := range s.rx[:n] {
			more = fn(f) && more
		}
		if !more {
			return true
		}
		if n == 0 && !s.wait(patience) {
			return false
		}
	}
}

func (s *station) wait(patience time.Duration) bool {
	ts := unix.NsecToTimespec(int64(patience))
	for {
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.drv.FD()), Events: unix.POLLIN}}, &ts, nil)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// number is what frame put into f; ok if f is as it was made.
func number(f []byte) (n uint64, ok bool) {
	n = binary.BigEndian.Uint64(f[14:])
	ok = n == binary.BigEndian.Uint64(f[22:])
	for _, b := range f[30:] {
		ok = ok && b == 0
	}
	return n, ok
}

// exchange passes one frame in each direction over a link.
func exchange(t testing.TB, l *Lab, link, a, b, size int) {
	t.Helper()
	x, y := open(t, l, link, a), open(t, l, link, b)
	for _, d := range []struct{ from, to *station }{{x, y}, {y, x}} {
		d.from.send(d.to.host, 7, 1, size)
		got := -1
		d.to.receive(patience(true), func(f []byte) bool { got = len(f); return false })
		if got != size {
			t.Fatalf("link %d, host %d to %d: a frame of %d bytes arrived as %d (-1: not at all)", link, d.from.host,
				d.to.host, size, got)
		}
	}
	x.drv.Close()
	y.drv.Close()
}

// descriptors counts this process's open files.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(d)
}

// strays lists threads of this process outside its own network namespace.
func strays(t testing.TB) (s []string) {
	t.Helper()
	home, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	tasks, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, task := range tasks {
		if ns, err := os.Readlink(task); err == nil && ns != home {
			s = append(s, task+" in "+ns)
		}
	}
	return s
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
