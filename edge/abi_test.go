package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// These tests play daemons of other releases to this library. Every number in them is from docs/ABI.md, none from
// internal/ipc: who changes the layout of anything fails here.

// abiDaemon serves one client: what is written to it, it keeps, and says so by a notification.
type abiDaemon struct {
	t       *testing.T
	fd      int
	submit  int // doorbell of the client's
	bell    int // of ours, which the client watches
	rings   []byte
	sq, cq  uint32 // entries
	factor  uint32 // of the completion ring
	head    uint32
	tail    uint32
	region  map[uint32][]byte
	remote  []byte
	done    sync.WaitGroup
	extra   int    // bytes at the end of every struct that the client does not know
	flags   uint16 // of the header, that it does not know
	trims   bool   // leaves out zeros at the end
	chatter bool   // events that the client does not know
	answer  func(hello, reply []byte) []byte
}

const (
	abiConn, abiIncoming = 7, 9  // connections
	abiKey, abiGrant     = 55, 5 // of our memory, and of the client's
)

var le = binary.LittleEndian

func abiString(b []byte, at int, s string) {
	le.PutUint16(b[at:], uint16(len(s)))
	copy(b[at+2:], s)
}

func abiText(b []byte, at int) string { return string(b[at+2:][:le.Uint16(b[at:])]) }

// open attaches a Device to the daemon.
func (a *abiDaemon) open(t *testing.T) (*Device, error) {
	t.Helper()
	a.t, a.submit, a.bell, a.region, a.remote = t, -1, -1, map[uint32][]byte{}, make([]byte, 4096)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	a.fd = fds[0]
	must(t, unix.SetNonblock(fds[1], true))
	ctl, err := ipc.FromFile(os.NewFile(uintptr(fds[1]), "client"))
	must(t, err)
	a.done.Go(a.serve)
	cfg := Config{QueueDepth: 64}
	must(t, cfg.normalize())
	d, err := attach(context.Background(), ctl, cfg, nil, nil)
	t.Cleanup(func() {
		if d != nil {
			d.Close()
		}
		a.done.Wait()
		for _, mem := range a.region {
			unix.Munmap(mem)
		}
		if a.rings != nil {
			unix.Munmap(a.rings)
		}
		for _, fd := range []int{a.fd, a.submit, a.bell} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	})
	return d, err
}

// send sends a packet as the daemon's release would.
func (a *abiDaemon) send(b []byte, kind, flags uint16, id uint64, fds ...int) {
	for a.trims && len(b) > 16 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	for range a.extra {
		b = append(b, 0xee)
	}
	le.PutUint32(b, uint32(len(b)))
	le.PutUint16(b[4:], kind)
	le.PutUint16(b[6:], flags|a.flags)
	le.PutUint64(b[8:], id)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	unix.Sendmsg(a.fd, b, oob, nil, unix.MSG_NOSIGNAL) // the client may have gone
}

// serve answers requests and serves the rings, until the client goes.
func (a *abiDaemon) serve() {
	for {
		set := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}, {Fd: int32(a.submit), Events: unix.POLLIN}}
		if a.rings != nil {
			controlWord(a.rings, 512).Store(1)
		}
		if a.rings == nil || controlWord(a.rings, 0).Load() == a.head {
			unix.Poll(set, -1)
		}
		if a.rings != nil {
			controlWord(a.rings, 512).Store(0)
			var b [8]byte
			if set[1].Revents != 0 {
				unix.Read(a.submit, b[:])
			}
			a.drain()
		}
		b := make([]byte, 2048)
		n, _, err := unix.Recvfrom(a.fd, b, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			continue
		}
		if err != nil || n < 16 {
			return
		}
		if int(le.Uint32(b)) != n || le.Uint16(b[6:]) != 0 || le.Uint64(b[8:]) == 0 {
			a.t.Errorf("request % x of %d bytes", b[:16], n)
		}
		if !a.request(b, le.Uint16(b[4:]), le.Uint64(b[8:])) {
			unix.Shutdown(a.fd, unix.SHUT_RDWR)
			return
		}
	}
}

// request reports false if the daemon hangs up.
func (a *abiDaemon) request(b []byte, kind uint16, id uint64) bool {
	switch kind {
	case 1:
		return a.hello(b, id)
	case 2:
		a.register(b, id)
	case 5:
		if abiText(b, 32) != "far" || abiText(b, 98) != "svc" || abiText(b, 230) != "hi" || le.Uint32(b[24:]) != 1 {
			a.t.Errorf("dial: % x", b[:240])
		}
		r := make([]byte, 680)
		le.PutUint32(r[16:], abiConn)
		abiString(r, 24, "far")
		abiString(r, 90, "ho")
		a.send(r, 5, 1, id)
		if a.chatter {
			a.send(bytes.Repeat([]byte{0xdd}, 100), 99, 0, 0)
			a.send(bytes.Repeat([]byte{0xdd}, 16), 127, 0, 0)
		}
		e := make([]byte, 120)
		le.PutUint64(e[16:], abiKey)
		le.PutUint64(e[24:], 4096)
		le.PutUint32(e[32:], abiConn)
		le.PutUint32(e[36:], 3)
		le.PutUint32(e[40:], 1)
		abiString(e, 48, "mem")
		a.send(e, 65, 0, 0)
	case 6:
		a.send(make([]byte, 16), 6, 1, id)
		e := make([]byte, 744)
		le.PutUint32(e[16:], abiIncoming)
		abiString(e, 24, abiText(b, 16))
		abiString(e, 90, "far")
		abiString(e, 156, "from afar")
		a.send(e, 64, 0, 0)
	case 8:
		if le.Uint32(b[16:]) != abiIncoming || abiText(b, 24) != "welcome" {
			a.t.Errorf("accept: % x", b[:40])
		}
		r := make([]byte, 680)
		le.PutUint32(r[16:], abiIncoming)
		a.send(r, 8, 1, id)
		e := make([]byte, 1056)
		le.PutUint32(e[16:], abiIncoming)
		le.PutUint32(e[20:], 777)
		abiString(e, 24, "for a reason of tomorrow")
		a.send(e, 68, 0, 0)
	case 10:
		if le.Uint64(b[16:]) != 64 || le.Uint64(b[24:]) != 128 || le.Uint32(b[32:]) != abiConn ||
			a.region[le.Uint32(b[36:])] == nil || le.Uint32(b[40:]) != 2 || abiText(b, 48) != "mine" {
			a.t.Errorf("export: % x", b[:56])
		}
		r := make([]byte, 40)
		le.PutUint64(r[16:], abiGrant)
		a.send(r, 10, 1, id)
	case 3, 4, 7, 11, 12, 13:
		a.send(make([]byte, 24), kind, 1, id)
	default:
		r := make([]byte, 1056)
		le.PutUint32(r[16:], 257)
		abiString(r, 24, "what?")
		a.send(r, kind, 3, id)
	}
	return true
}

func (a *abiDaemon) hello(b []byte, id uint64) bool {
	if le.Uint32(b[16:]) != 2 || le.Uint32(b[20:]) != 2 || le.Uint64(b[24:]) != 0x355fa || le.Uint64(b[32:]) != 0 ||
		le.Uint32(b[40:]) != 64 || le.Uint16(b[48:]) != 64 || le.Uint16(b[50:]) != 32 || abiText(b, 56) == "" {
		a.t.Errorf("hello: % x", b[:64])
	}
	a.sq, a.cq = 64, 64*a.factor
	size := (4096 + 64*int(a.sq) + 32*int(a.cq) + 4095) &^ 4095
	fd := a.memfd(size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	defer unix.Close(fd)
	var err error
	a.rings, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		a.submit, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		a.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	watch := -1
	if err == nil {
		watch, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		defer unix.Close(watch)
	}
	if err == nil {
		err = unix.EpollCtl(watch, unix.EPOLL_CTL_ADD, a.bell, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
	}
	if err != nil {
		a.t.Error(err)
		return false
	}
	r := make([]byte, 184)
	le.PutUint32(r[16:], 2)
	le.PutUint32(r[20:], 32)
	le.PutUint32(r[32:], a.sq)
	le.PutUint32(r[36:], a.cq)
	le.PutUint16(r[40:], 64)
	le.PutUint16(r[42:], 32)
	le.PutUint32(r[44:], 1)
	abiString(r, 48, "00112233aabbccdd")
	abiString(r, 114, "other release")
	if a.answer != nil {
		if r = a.answer(b, r); r == nil {
			return false
		}
	}
	a.send(r, 1, 1|le.Uint16(r[6:]), id, fd, a.submit, watch)
	return true
}

func (a *abiDaemon) memfd(size, seals int) int {
	fd, err := unix.MemfdCreate("abi", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		a.t.Error(err)
	}
	return fd
}

func (a *abiDaemon) register(b []byte, id uint64) {
	size := (int(le.Uint64(b[16:])) + 4095) &^ 4095
	fd := a.memfd(size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil || le.Uint32(b[24:]) != 0 {
		a.t.Errorf("register: % x, %v", b[:32], err)
	}
	number := uint32(len(a.region)) + 0x10001
	a.region[number] = mem
	r := make([]byte, 32)
	le.PutUint64(r[16:], uint64(size))
	le.PutUint32(r[24:], number)
	a.send(r, 2, 1, id, fd)
}

// drain serves the submission ring.
func (a *abiDaemon) drain() {
	for ; a.head != controlWord(a.rings, 0).Load(); a.head++ {
		e := bytes.Clone(a.rings[4096+a.head%a.sq*64:][:64])
		status := byte(4)
		local, off, n := a.region[le.Uint32(e[40:])], le.Uint64(e[48:]), le.Uint64(e[56:])
		conn, at := le.Uint32(e[4:]), le.Uint64(e[32:])
		if e[0] == 3 {
			continue // credit
		}
		if e[2] != 0 {
			local, off, n = e[40:], 0, uint64(e[2])
		}
		if conn == abiConn && le.Uint64(e[24:]) == abiKey && off+n <= uint64(len(local)) && at+n <= 4096 {
			status = 0
			if e[0] == 1 {
				copy(a.remote[at:at+n], local[off:])
			} else {
				copy(local[off:off+n], a.remote[at:])
			}
		}
		a.complete(1, status, conn, le.Uint64(e[16:]), 0, 0, 0)
		if e[1]&4 != 0 {
			a.complete(2, 0, conn, abiGrant, le.Uint32(e[8:]), uint32(n), at)
		}
	}
	controlWord(a.rings, 128).Store(a.head)
}

func (a *abiDaemon) complete(kind, status byte, conn uint32, token uint64, imm, length uint32, off uint64) {
	e := a.rings[4096+a.sq*64+a.tail%a.cq*32:][:32]
	clear(e)
	e[0], e[1] = kind, status
	le.PutUint32(e[4:], conn)
	le.PutUint64(e[8:], token)
	le.PutUint32(e[16:], imm)
	le.PutUint32(e[20:], length)
	le.PutUint64(e[24:], off)
	a.tail++
	controlWord(a.rings, 256).Store(a.tail)
	if controlWord(a.rings, 640).Swap(0) != 0 {
		unix.Write(a.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// TestABIDaemons: this library works with daemons of every release.
func TestABIDaemons(t *testing.T) {
	for _, c := range []struct {
		name   string
		daemon *abiDaemon
	}{
		{"older", &abiDaemon{factor: 2, trims: true}},
		{"this", &abiDaemon{factor: 4}},
		{"newer", &abiDaemon{factor: 16, extra: 52, flags: 0xfffc, chatter: true}},
	} {
		t.Run(c.name, func(t *testing.T) { useABIDaemon(t, c.daemon) })
	}
}

func useABIDaemon(t *testing.T, a *abiDaemon) {
	ctx := testContext(t)
	d, err := a.open(t)
	must(t, err)
	if d.Name() != "other release" {
		t.Errorf("node %q", d.Name())
	}
	region, err := d.Register(5000)
	must(t, err)
	conn, err := d.Dial(ctx, "far", "svc", Ordered(), Data([]byte("hi")))
	must(t, err)
	if conn.Peer() != "far" || string(conn.Data()) != "ho" {
		t.Errorf("connection to %q with %q", conn.Peer(), conn.Data())
	}
	remote, err := conn.Import(ctx, "mem")
	must(t, err)
	if remote.Size() != 4096 || remote.Perm() != RemoteRead|RemoteWrite {
		t.Errorf("remote memory: %d, %v", remote.Size(), remote.Perm())
	}
	grant, err := region.Export(conn, "mine", RemoteWrite, 64, 128)
	must(t, err)
	for i := range 300 { // more than the ring is long, and credit for
		copy(region.Bytes()[10:], "written")
		op, err := conn.Post(ctx, &Work{Kind: Write, Flags: Notify, Imm: uint32(i), Local: region, LocalOff: 10,
			Len: 7, Remote: remote, RemoteOff: 20})
		must(t, err)
		must(t, op.Wait(ctx))
		n, err := conn.WaitNotify(ctx)
		must(t, err)
		if n.Imm != uint32(i) || n.Len != 7 || n.Offset != 20 || n.Grant != grant {
			t.Fatalf("notification %+v", n)
		}
	}
	op, err := conn.Post(ctx, &Work{Kind: Read, Local: region, LocalOff: 4000, Len: 7, Remote: remote,
		RemoteOff: 20})
	must(t, err)
	must(t, op.Wait(ctx))
	if string(region.Bytes()[4000:4007]) != "written" {
		t.Errorf("read %q", region.Bytes()[4000:4007])
	}
	must(t, grant.Revoke())
	must(t, conn.Close())
	must(t, region.Close())
	l, err := d.Listen(ctx, "here")
	must(t, err)
	req, err := l.Next(ctx)
	must(t, err)
	if req.Peer() != "far" || string(req.Data()) != "from afar" {
		t.Errorf("request of %q with %q", req.Peer(), req.Data())
	}
	in, err := req.Accept(ctx, []byte("welcome"))
	must(t, err)
	if _, err = in.WaitNotify(ctx); err == nil || !strings.Contains(err.Error(), "for a reason of tomorrow") {
		t.Errorf("the end of a connection: %v", err)
	}
	if err := second(d.status(ctx, "status")); err == nil || !errors.Is(err, ErrVersion) {
		t.Errorf("a request that the daemon does not know: %v", err)
	}
	must(t, l.Close())
}

// TestABIDaemonRefusals: a daemon with which nothing can be agreed on, or that agrees on what it was not offered, is
// named as such.
func TestABIDaemonRefusals(t *testing.T) {
	put := func(at int, v uint32) func(_, r []byte) []byte {
		return func(_, r []byte) []byte { le.PutUint32(r[at:], v); return r }
	}
	for _, c := range []struct {
		what   string
		answer func(hello, reply []byte) []byte
		want   error
		says   string
	}{
		{"refuses", func(_, _ []byte) []byte {
			r := make([]byte, 1056)
			le.PutUint16(r[6:], 3)
			le.PutUint32(r[16:], 264)
			abiString(r, 24, "the client speaks versions 2 to 2, this daemon 5 to 6: upgrade the client")
			return r
		}, ErrVersion, "this daemon 5 to 6: upgrade the client"},
		{"hangs up, as version 1 did", func(_, _ []byte) []byte { return nil }, ErrDaemonDown, "upgrade it"},
		{"version 3", put(16, 3), ErrVersion, "version 3"},
		{"version 1", put(16, 1), ErrVersion, "version 1"},
		{"features nobody asked for", put(24, 4), ErrVersion, "0x4"},
		{"longer entries", put(40, 128|32<<16), ErrVersion, "128"},
		{"shorter entries", put(40, 64|16<<16), ErrVersion, "16"},
		{"another depth", put(32, 128), ErrVersion, "128"},
		{"a completion ring too short", put(36, 64), ErrVersion, "completion ring"},
		{"a completion ring of no power of two", put(36, 192), ErrVersion, "completion ring"},
	} {
		a := abiDaemon{factor: 4, answer: c.answer}
		d, err := a.open(t)
		if d != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
