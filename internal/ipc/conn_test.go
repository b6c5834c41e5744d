package ipc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, b, err := Pair()
	must(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestMessagesAndDescriptors(t *testing.T) {
	a, b := pair(t)
	m := &Message{ID: 9, Kind: KindDial, Timeout: time.Second, Data: []byte{1, 2}}
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	must(t, a.Send(m, int(r.Fd()), int(r.Fd())))
	r.Close()
	got, fds, err := b.RecvFDs()
	if err != nil || len(fds) != 2 || got.ID != 9 || got.Timeout != time.Second ||
		!bytes.Equal(got.Data, m.Data) {
		t.Fatalf("%+v, %v, %v", got, fds, err)
	}
	w.Write([]byte("x"))
	var x [1]byte
	if n, err := unix.Read(fds[1], x[:]); n != 1 || err != nil || x[0] != 'x' {
		t.Fatalf("descriptor reads %d, %v", n, err)
	}
	if fl, _ := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); fl&unix.FD_CLOEXEC == 0 {
		t.Error("descriptor survives exec")
	}
	CloseFDs(fds)
	if c, err := b.Peer(); err != nil || int(c.PID) != os.Getpid() || int(c.UID) != os.Getuid() {
		t.Errorf("peer %+v, %v", c, err)
	}
	a.Close()
	if _, err := b.Recv(); err != io.EOF {
		t.Errorf("after close: %v", err)
	}
}

// TestTold: what is sent is counted in the client's rings (A6.3), by whom ever; what was not sent is not, and nothing
// is once the rings are to be unmapped.
func TestTold(t *testing.T) {
	a, b := pair(t)
	l, err := LayoutFor(MinDepth)
	must(t, err)
	r, err := NewRings(alignedBytes(l.Size()), l)
	must(t, err)
	m := &Message{ID: 1, Kind: KindDial, Data: make([]byte, MaxData)}
	must(t, a.Send(m))
	a.Count(r)
	must(t, a.Send(m))
	sent := uint32(1)
	for ; a.TrySend(m); sent++ {
		if sent == 1<<20 {
			t.Fatal("TrySend finds room for everything")
		}
	}
	if r.Told() != sent || sent == 1 {
		t.Fatalf("%d packets were sent, %d counted", sent, r.Told())
	}
	for range sent + 1 {
		if _, err := b.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if !a.TrySend(m) || r.Told() != sent+1 {
		t.Fatalf("after there is room %d counted", r.Told())
	}
	a.Count(nil)
	if !a.TrySend(m) || r.Told() != sent+1 {
		t.Fatal("counted in rings that are nobody's")
	}
	a.turn <- struct{}{} // somebody sends
	if a.TrySend(m) {
		t.Fatal("TrySend sends beside another")
	}
	<-a.turn
	a.Close()
	if a.TrySend(m) {
		t.Fatal("sent on a closed connection")
	}
}

// openFDs counts this process's descriptors.
func openFDs(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(d)
}

// unheardOf is a kind of no release.
const unheardOf Kind = 9999

func TestUnwantedDescriptorsAreClosed(t *testing.T) {
	a, b := pair(t)
	before := openFDs(t)
	must(t, a.Send(&Message{Kind: unheardOf}, 0))
	if _, err := b.Recv(); !errors.Is(err, ErrDescriptors) {
		t.Fatalf("unwanted descriptor: %v", err)
	}
	bare16, err := (&Message{Kind: unheardOf}).Encode()
	must(t, err)
	flood := make([]int, 200) // more than the receiver has room for
	if _, _, err := a.uc.WriteMsgUnix(bare16, unix.UnixRights(flood...), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.RecvFDs(); !errors.Is(err, ErrDescriptors) {
		t.Fatalf("flood of descriptors: %v", err)
	}
	if _, _, err := a.uc.WriteMsgUnix([]byte(`nonsense`), unix.UnixRights(0, 0), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.RecvFDs(); err == nil {
		t.Fatal("nonsense accepted")
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors leaked", after-before)
	}
	if err := a.Send(&Message{Kind: unheardOf}, 0, 0, 0, 0); err == nil {
		t.Error("four descriptors sent")
	}
}

func TestMessageBounds(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, m := range map[string]*Message{
		"service": {Kind: KindListen, Service: long}, "data": {Kind: KindDial, Data: []byte(long)},
		"text": {Kind: KindRefuse, Text: long}, "error": {Kind: KindDial, Error: &Error{Text: long}},
		"negative": {Kind: KindDial, Timeout: -1}, "negative page": {Kind: KindStatus, Page: -1},
		"depth": {Kind: KindHello, Greeting: Greeting{Depth: -1}}, "what": {Kind: KindStatus, What: long},
		"body": {Kind: KindStatus, Body: []byte(`"` + strings.Repeat("x", MaxMessage) + `"`)},
	} {
		if _, err := m.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	a, b := pair(t)
	if _, err := a.uc.Write(binary.LittleEndian.AppendUint32(nil, MaxMessage+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Recv(); err == nil {
		t.Error("a message of another size than it says was received")
	}
	if _, err := a.uc.Write(append(binary.LittleEndian.AppendUint32(nil, MaxMessage+1),
		make([]byte, MaxMessage-3)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Recv(); err == nil {
		t.Error("a message that is too long was received")
	}
	big := &Message{Kind: KindStatus, Body: []byte(`"` + strings.Repeat("x", MaxMessage-100) + `"`)}
	must(t, a.Send(big))
	if m, err := b.Recv(); err != nil || len(m.Body) != len(big.Body) {
		t.Errorf("the largest message: %v", err)
	}
}

func TestFailReplies(t *testing.T) {
	m := &Message{ID: 3, Kind: KindDial}
	for _, tc := range []struct {
		err  error
		want Error
	}{
		{Errorf(CodeLimit, "only %d", 5), Error{CodeLimit, "only 5"}},
		{errors.New("boom"), Error{CodeInternal, "boom"}},
		{errors.New(strings.Repeat("y", 5000)), Error{CodeInternal, strings.Repeat("y", MaxText)}},
	} {
		if r := m.Fail(tc.err); *r.Error != tc.want || r.ID != 3 || r.Kind != KindDial {
			t.Errorf("%v became %+v", tc.err, r.Error)
		}
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run", "edged.sock")
	l, err := Listen(path, 0o660)
	must(t, err)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
		t.Fatalf("socket %v, %v", st, err)
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = c.Recv()
			c.Close()
		}
		accepted <- err
	}()
	c, err := Dial(context.Background(), path)
	must(t, err)
	must(t, c.Send(&Message{Kind: unheardOf}))
	must(t, <-accepted)
	c.Close()
	go func() { // Listen looks whether somebody answers
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
		accepted <- nil
	}()
	if _, err := Listen(path, 0o660); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Fatalf("second daemon: %v", err)
	}
	<-accepted
	l.ul.SetUnlinkOnClose(false) // as if killed
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := Dial(context.Background(), path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dial to a dead daemon: %v", err)
	}
	l, err = Listen(path, 0o600)
	if err != nil {
		t.Fatalf("taking over from a dead daemon: %v", err)
	}
	l.Close()
	if _, err := Dial(context.Background(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dial to nothing: %v", err)
	}
	os.WriteFile(path, nil, 0o600)
	if _, err := Listen(path, 0o600); err == nil {
		t.Error("an ordinary file was replaced")
	}
}

// A Send whose context ends gives up, stuck in a full socket or behind another, has sent nothing of its message, and
// cuts short nobody else.
func TestSendGivesUp(t *testing.T) {
	a, b := pair(t)
	rc, err := a.uc.SyscallConn()
	must(t, err)
	filling, err := (&Message{Kind: unheardOf}).Encode()
	must(t, err)
	filler := 0
	rc.Control(func(fd uintptr) {
		for unix.Send(int(fd), filling, unix.MSG_DONTWAIT) == nil {
			filler++
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp, sent := make(chan error), make(chan error)
	for range 10 {
		go func() { gaveUp <- a.SendContext(ctx, &Message{Kind: unheardOf + 1}) }()
	}
	go func() { sent <- a.Send(&Message{Kind: unheardOf + 2}) }()
	cancel()
	for range 10 {
		if err := <-gaveUp; err != context.Canceled {
			t.Errorf("gave up with %v", err)
		}
	}
	for range filler {
		if m, err := b.Recv(); err != nil || m.Kind != unheardOf {
			t.Fatalf("received %+v, %v", m, err)
		}
	}
	if m, err := b.Recv(); err != nil || m.Kind != unheardOf+2 {
		t.Errorf("received %+v, %v", m, err)
	}
	if err := <-sent; err != nil {
		t.Errorf("the last: %v", err)
	}
}

// An end is seen to be closed, whatever is still to be received.
func TestGone(t *testing.T) {
	a, b := pair(t)
	if err := b.Send(&Message{ID: 1, Kind: KindStatus}); err != nil || a.Gone() || b.Gone() {
		t.Fatalf("both are open: %v", err)
	}
	b.Close()
	if !a.Gone() || !b.Gone() {
		t.Error("one is closed")
	}
	if _, err := a.Recv(); err != nil || !a.Gone() {
		t.Errorf("what was sent before: %v", err)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
