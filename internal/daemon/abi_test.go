package daemon

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// These tests play clients of other releases, and in another language, against real daemons. Every number in them is
// from docs/ABI.md, none from internal/ipc: who changes the layout of anything fails here.

// era is what a client of some release does otherwise.
type era struct {
	name             string
	lowest, highest  uint32
	features, wanted uint64 // wanted: in force
	sqe, cqe         uint16
	helloSize        int // of the structs that it knows; 0: all of it
	dialSize         int
	extra            int    // bytes at the end of every struct that this daemon does not know
	flags            uint16 // of the header, that it does not know
	room             int    // of its buffer
}

var eras = []era{
	{name: "older", lowest: 1, highest: 2, sqe: 64, cqe: 32, helloSize: 52, dialSize: 164, room: 160},
	{name: "this", lowest: 2, highest: 2, sqe: 64, cqe: 32, room: 2048},
	{name: "newer", lowest: 2, highest: 9, features: 1 | 1<<63 | 1<<31, wanted: 1, sqe: 192, cqe: 64, extra: 44,
		flags: 0xfffc, room: 4096},
}

// abiClient is a client that knows docs/ABI.md alone.
type abiClient struct {
	t      *testing.T
	era    era
	fd     int
	id     uint64
	events [][]byte

	rings         []byte
	entries       uint32
	cqEntries     uint32
	sqe, cqe      uint32
	tail, head    uint32
	submit, watch int
}

// connectABI connects to e by a socket of the file system, as processes do.
func connectABI(t *testing.T, e *Embedded, with era) *abiClient {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ipc.Listen(path, 0o600)
	must(t, err)
	defer l.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	must(t, err)
	conn, err := l.Accept()
	must(t, err)
	e.d.serve(conn)
	c := &abiClient{t: t, era: with, fd: fd, submit: -1, watch: -1}
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(deadline / time.Second)})
	t.Cleanup(func() {
		for _, fd := range []int{c.fd, c.submit, c.watch} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
		if c.rings != nil {
			unix.Munmap(c.rings)
		}
	})
	return c
}

var le = binary.LittleEndian

// packet begins a struct of so many bytes.
func packet(size int, kind uint16) []byte {
	b := make([]byte, size)
	le.PutUint16(b[4:], kind)
	return b
}

func putString(b []byte, at int, s string) {
	le.PutUint16(b[at:], uint16(len(s)))
	copy(b[at+2:], s)
}

func getString(b []byte, at int) string { return string(b[at+2 : at+2+int(le.Uint16(b[at:]))]) }

// send sends a request as the client's release would, and returns its number.
func (c *abiClient) send(b []byte, fds ...int) uint64 {
	c.t.Helper()
	c.id++
	for range c.era.extra {
		b = append(b, 0xee)
	}
	le.PutUint32(b, uint32(len(b)))
	le.PutUint16(b[6:], le.Uint16(b[6:])|c.era.flags)
	le.PutUint64(b[8:], c.id)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := uninterrupted(func() error {
		return unix.Sendmsg(c.fd, b, oob, nil, unix.MSG_NOSIGNAL)
	}); err != nil {
		c.t.Fatalf("request of kind %d: %v", le.Uint16(b[4:]), err)
	}
	return c.id
}

// uninterrupted calls until no signal interrupts: the kernel restarts no call of a socket that has a timeout.
func uninterrupted(call func() error) (err error) {
	for err = call(); err == unix.EINTR; err = call() {
	}
	return err
}

// receive returns one packet, of which the client sees no more than it has room for, and zeros behind its end (A3.4).
func (c *abiClient) receive() (b []byte, fds []int) {
	c.t.Helper()
	b = make([]byte, max(c.era.room, 2048))
	oob := make([]byte, unix.CmsgSpace(12))
	var n, oobn int
	err := uninterrupted(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(c.fd, b[:c.era.room], oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil || n < 16 {
		c.t.Fatalf("%d bytes, %v", n, err)
	}
	if size := le.Uint32(b); int(size) < n || n < c.era.room && int(size) != n {
		c.t.Fatalf("a packet of %d bytes says %d", n, size)
	}
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			c.t.Fatal(err)
		}
		if fds, err = unix.ParseUnixRights(&msgs[0]); err != nil {
			c.t.Fatal(err)
		}
	}
	return b, fds
}

// reply waits for the reply to a request; status is 0 or why it failed, by text.
func (c *abiClient) reply(id uint64, kind uint16) (b []byte, fds []int, status uint32, text string) {
	c.t.Helper()
	for {
		b, fds = c.receive()
		switch got := le.Uint64(b[8:]); {
		case got == 0:
			c.events = append(c.events, b)
			continue
		case got != id || le.Uint16(b[4:]) != kind || le.Uint16(b[6:])&1 == 0:
			c.t.Fatalf("waiting for reply %d of kind %d: % x", id, kind, b[:16])
		}
		if le.Uint16(b[6:])&2 != 0 {
			n := min(int(le.Uint16(b[24:])), len(b)-26)
			return b, fds, le.Uint32(b[16:]), string(b[26 : 26+n])
		}
		return b, fds, 0, ""
	}
}

// call requires success.
func (c *abiClient) call(b []byte, fds ...int) (reply []byte, got []int) {
	c.t.Helper()
	kind := le.Uint16(b[4:])
	reply, got, status, text := c.reply(c.send(b, fds...), kind)
	if status != 0 {
		c.t.Fatalf("request of kind %d fails by %d: %s", kind, status, text)
	}
	return reply, got
}

// fails requires a failure with a status, by a text that says certain things.
func (c *abiClient) fails(b []byte, status uint32, says ...string) {
	c.t.Helper()
	kind := le.Uint16(b[4:])
	_, fds, got, text := c.reply(c.send(b), kind)
	for _, s := range says {
		if !strings.Contains(text, s) {
			c.t.Errorf("request of kind %d: %q is missing in %q", kind, s, text)
		}
	}
	if got != status || len(fds) != 0 {
		c.t.Errorf("request of kind %d fails by %d, %q, not %d", kind, got, text, status)
	}
}

// event waits for an event of a kind.
func (c *abiClient) event(kind uint16) []byte {
	c.t.Helper()
	for i, b := range c.events {
		if le.Uint16(b[4:]) == kind {
			c.events = append(c.events[:i], c.events[i+1:]...)
			return b
		}
	}
	for {
		b, _ := c.receive()
		if le.Uint64(b[8:]) != 0 || le.Uint16(b[6:])&3 != 0 {
			c.t.Fatalf("waiting for event %d: % x", kind, b[:16])
		}
		if le.Uint16(b[4:]) == kind {
			return b
		}
		c.events = append(c.events, b)
	}
}

// greeting is hello (A5.1).
func (c *abiClient) greeting(lowest, highest uint32, features, required uint64) []byte {
	b := packet(128, 1)
	le.PutUint32(b[16:], lowest)
	le.PutUint32(b[20:], highest)
	le.PutUint64(b[24:], features)
	le.PutUint64(b[32:], required)
	le.PutUint32(b[40:], 64)
	le.PutUint16(b[48:], c.era.sqe)
	le.PutUint16(b[50:], c.era.cqe)
	putString(b, 56, "abi client")
	if c.era.helloSize > 0 {
		b = b[:c.era.helloSize]
	}
	return b
}

// hello attaches (A5.2, A6.1, A6.2).
func (c *abiClient) hello() {
	c.t.Helper()
	b, fds := c.call(c.greeting(c.era.lowest, c.era.highest, c.era.features, 0))
	c.entries, c.cqEntries = le.Uint32(b[32:]), le.Uint32(b[36:])
	c.sqe, c.cqe = uint32(le.Uint16(b[40:])), uint32(le.Uint16(b[42:]))
	if le.Uint32(b[16:]) != 2 || le.Uint64(b[24:]) != c.era.wanted || c.entries != 64 || c.cqEntries != 256 ||
		c.sqe != 64 || c.cqe != 32 || le.Uint32(b[20:]) != 1024 || le.Uint32(b[44:]) != 1 || len(fds) != 3 {
		c.t.Fatalf("%s: hello says % x with descriptors %d", c.era.name, b[:48], fds)
	}
	if node := getString(b, 48); len(node) != 16 || getString(b, 114) == "" {
		c.t.Fatalf("the node is %q, %q", node, getString(b, 114))
	}
	var st unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fds[0], &st)
	}
	size := 4096 + int(c.entries*c.sqe) + int(c.cqEntries*c.cqe) // whole pages
	if err != nil || seals&7 != 7 || st.Size != int64(size) {
		c.t.Fatalf("rings of %d bytes with seals %#x, %v; want %d", st.Size, seals, err, size)
	}
	if c.rings, err = unix.Mmap(fds[0], 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		c.t.Fatal(err)
	}
	unix.Close(fds[0])
	c.submit, c.watch = fds[1], fds[2]
}

// register returns memory that the daemon made (A7.3), or the client if it can (A7.5).
func (c *abiClient) register(size int) (region uint32, mem []byte) {
	c.t.Helper()
	b := packet(32, 2)
	le.PutUint64(b[16:], uint64(size))
	if c.era.wanted&1 != 0 {
		fd, mem := c.memfd(size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW, 0)
		defer unix.Close(fd)
		le.PutUint32(b[24:], 1)
		r, fds := c.call(b, fd)
		if le.Uint64(r[16:]) != uint64(size) || len(fds) != 0 {
			c.t.Fatalf("own memory: % x", r[:32])
		}
		return le.Uint32(r[24:]), mem
	}
	r, fds := c.call(b)
	if len(fds) != 1 || le.Uint64(r[16:]) != uint64(size) {
		c.t.Fatalf("register: % x with descriptors %d", r[:32], fds)
	}
	mem, err := unix.Mmap(fds[0], 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { unix.Munmap(mem) })
	region = le.Uint32(r[24:])
	b = packet(24, 3)
	le.PutUint32(b[16:], region)
	c.call(b)
	unix.Close(fds[0])
	return region, mem
}

// memfd returns memory of the client's own, mapped.
func (c *abiClient) memfd(size, seals, flags int) (fd int, mem []byte) {
	c.t.Helper()
	fd, err := unix.MemfdCreate("abi", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { unix.Munmap(mem) })
	return fd, mem
}

// post writes a submission (A6.6) and wakes the daemon if it sleeps (A8.2).
func (c *abiClient) post(op, flags byte, conn, imm uint32, token, key, remote uint64, region uint32, off, n uint64) {
	e := c.rings[4096+c.tail%c.entries*c.sqe:][:64]
	clear(e)
	e[0], e[1] = op, flags
	le.PutUint32(e[4:], conn)
	le.PutUint32(e[8:], imm)
	le.PutUint64(e[16:], token)
	le.PutUint64(e[24:], key)
	le.PutUint64(e[32:], remote)
	le.PutUint32(e[40:], region)
	le.PutUint64(e[48:], off)
	le.PutUint64(e[56:], n)
	c.tail++
	storeWord(c.rings, 0, c.tail)
	if loadWord(c.rings, 512) != 0 && takeWord(c.rings, 512) != 0 {
		unix.Write(c.submit, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// completion waits for the next completion or notification (A6.11, A8.3).
func (c *abiClient) completion() []byte {
	c.t.Helper()
	for late := time.Now().Add(deadline); time.Now().Before(late); {
		if loadWord(c.rings, 256) != c.head {
			e := bytes.Clone(c.rings[4096+c.entries*c.sqe+c.head%c.cqEntries*c.cqe:][:32])
			c.head++
			storeWord(c.rings, 384, c.head)
			return e
		}
		storeWord(c.rings, 640, 1)
		if loadWord(c.rings, 256) == c.head {
			unix.Poll([]unix.PollFd{{Fd: int32(c.watch), Events: unix.POLLIN}}, int(deadline/time.Millisecond))
		}
		storeWord(c.rings, 640, 0)
		unix.EpollWait(c.watch, make([]unix.EpollEvent, 4), 0)
	}
	c.t.Fatal("no completion")
	return nil
}

func conn32(size int, kind uint16, conn uint32) []byte {
	b := packet(size, kind)
	le.PutUint32(b[16:], conn)
	return b
}

// TestABI: clients of every release do together whatever clients do.
func TestABI(t *testing.T) {
	for _, server := range eras {
		for _, client := range eras {
			t.Run(server.name+" server, "+client.name+" client", func(t *testing.T) {
				a, b := nodes(t, 1, nil)
				s, c := connectABI(t, a, server), connectABI(t, b, client)
				s.hello()
				c.hello()
				playABI(t, s, c)
			})
		}
	}
}

func playABI(t *testing.T, s, c *abiClient) {
	const size = 8192
	sRegion, sMem := s.register(size)
	cRegion, cMem := c.register(size)
	listen := packet(88, 6)
	putString(listen, 16, "svc")
	s.call(listen)

	dial := packet(744, 5)
	le.PutUint64(dial[16:], uint64(deadline))
	le.PutUint32(dial[24:], 1)
	putString(dial, 32, "a")
	putString(dial, 98, "svc")
	putString(dial, 230, "hi")
	if c.era.dialSize > 0 {
		dial = dial[:c.era.dialSize]
	}
	dialled := c.send(dial)
	in := s.event(64)
	sConn := le.Uint32(in[16:])
	if getString(in, 24) != "svc" || getString(in, 90) != "b" ||
		c.era.dialSize == 0 && s.era.room > 160 && getString(in, 156) != "hi" {
		t.Fatalf("incoming: % x", in[:160])
	}
	accept := packet(544, 8)
	le.PutUint32(accept[16:], sConn)
	putString(accept, 24, "ho")
	if r, _ := s.call(accept); le.Uint32(r[16:]) != sConn {
		t.Fatalf("accept: % x", r[:32])
	}
	r, _, status, text := c.reply(dialled, 5)
	cConn := le.Uint32(r[16:])
	if status != 0 || cConn == 0 || getString(r, 24) != "a" || getString(r, 90) != "ho" {
		t.Fatalf("dial: %d %q % x", status, text, r[:96])
	}

	export := packet(120, 10)
	le.PutUint64(export[16:], 4096)
	le.PutUint64(export[24:], 4000)
	le.PutUint32(export[32:], sConn)
	le.PutUint32(export[36:], sRegion)
	le.PutUint32(export[40:], 3)
	putString(export, 48, "mem")
	r, _ = s.call(export)
	exported := le.Uint64(r[16:])
	if exported == 0 || le.Uint64(r[24:]) != 4000 || le.Uint32(r[32:]) != sConn {
		t.Fatalf("export: % x", r[:40])
	}
	ad := c.event(65)
	key := le.Uint64(ad[16:])
	if key != exported || le.Uint64(ad[24:]) != 4000 || le.Uint32(ad[32:]) != cConn || le.Uint32(ad[36:]) != 3 ||
		getString(ad, 48) != "mem" {
		t.Fatalf("advert: % x", ad[:64])
	}

	copy(cMem[100:], "one-sided")
	c.post(1, 4, cConn, 77, 1001, key, 10, cRegion, 100, 9) // write and notify
	if e := c.completion(); e[0] != 1 || e[1] != 0 || le.Uint32(e[4:]) != cConn || le.Uint64(e[8:]) != 1001 {
		t.Fatalf("completion: % x", e)
	}
	if e := s.completion(); e[0] != 2 || e[1] != 0 || le.Uint32(e[4:]) != sConn || le.Uint64(e[8:]) != exported ||
		le.Uint32(e[16:]) != 77 || le.Uint32(e[20:]) != 9 || le.Uint64(e[24:]) != 10 {
		t.Fatalf("notification: % x", e)
	}
	if string(sMem[4106:4115]) != "one-sided" {
		t.Fatalf("written: %q", sMem[4096:4120])
	}
	s.post(3, 0, sConn, 1, 0, 0, 0, 0, 0, 0) // credit
	copy(sMem[4096:], "fetched")
	c.post(2, 0, cConn, 0, 1002, key, 0, cRegion, 200, 7) // read
	if e := c.completion(); e[1] != 0 || le.Uint64(e[8:]) != 1002 || string(cMem[200:207]) != "fetched" {
		t.Fatalf("read: % x, %q", e, cMem[200:210])
	}
	c.post(1, 0, cConn, 0, 1003, key, 3999, cRegion, 0, 9)
	if e := c.completion(); e[1] != 4 || le.Uint64(e[8:]) != 1003 {
		t.Fatalf("beyond the export: % x", e)
	}
	awaitABI(t, c, cConn, key, cRegion)
	endABI(t, s, c, sConn, cConn, sRegion, exported)
}

// awaitABI is A8.8: nothing else is in flight, so a client that waits for more is told all the same.
func awaitABI(t *testing.T, c *abiClient, conn uint32, key uint64, region uint32) {
	for _, several := range []uint32{2, 1<<31 - 1, 1<<31 + 9, 0} {
		storeWord(c.rings, 704, several)
		c.post(1, 0, conn, 0, 1004, key, 0, region, 0, 9)
		c.post(1, 0, conn, 0, 1005, key, 0, region, 0, 9)
		for range 2 {
			if e := c.completion(); e[0] != 1 || e[1] != 0 || le.Uint64(e[8:])|1 != 1005 {
				t.Fatalf("one of two, of which a client waits for %d: % x", several, e)
			}
		}
	}
}

func endABI(t *testing.T, s, c *abiClient, sConn, cConn, region uint32, key uint64) {
	revoke := packet(32, 11)
	le.PutUint64(revoke[16:], key)
	le.PutUint32(revoke[24:], sConn)
	s.call(revoke)
	if w := c.event(66); le.Uint64(w[16:]) != key || le.Uint32(w[24:]) != cConn {
		t.Fatalf("withdrawn: % x", w[:32])
	}
	if r, _ := c.call(conn32(24, 12, cConn)); le.Uint32(r[16:]) != cConn {
		t.Fatalf("close: % x", r[:24])
	}
	if e := s.event(68); le.Uint32(e[16:]) != sConn || le.Uint32(e[20:]) != 5 {
		t.Fatalf("closed: % x", e[:32])
	}
	c.fails(conn32(24, 13, cConn), 201, "connection")
	s.call(conn32(24, 4, region))
	s.fails(conn32(24, 4, region), 261)
	unlisten := packet(88, 7)
	putString(unlisten, 16, "svc")
	s.call(unlisten)
	for _, unheard := range []uint16{0, 14, 63, 64, 68, 99, 400, 65535} {
		s.fails(packet(24, unheard), 257, "upgrade")
	}
	status := packet(16, 258) // a JSON body, here none, is for people
	before := s.era.extra
	s.era.extra = 0
	if r, _ := s.call(status); !strings.Contains(string(r[:1000]), `"ipc_version":2`) && s.era.room > 1000 {
		t.Errorf("version: %q", r[:200])
	}
	s.era.extra = before
}

// TestABIRefusals: who cannot agree is told so, by both versions, and may try again (A2.3, A2.5, A2.7).
func TestABIRefusals(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := connectABI(t, a, eras[1])
	c.fails(c.greeting(1, 1, 0, 0), 264, "versions 1 to 1", "2 to 2", "upgrade the client")
	c.fails(c.greeting(3, 9, 0, 0), 264, "versions 3 to 9", "2 to 2", "upgrade the daemon")
	c.fails(c.greeting(2, 2, 0, 1<<40), 264, "0x10000000000", "versions 2 to 2", "upgrade the daemon")
	c.fails(packet(16, 1), 264, "versions 0 to 0", "upgrade the client")
	c.fails(packet(32, 2), 256, "hello")
	c.era.sqe = 32
	c.fails(c.greeting(2, 2, 0, 0), 264, "32", "64")
	c.era.sqe = 64
	c.hello()
	c.fails(c.greeting(2, 2, 0, 0), 256)
	bad := packet(88, 6)
	le.PutUint16(bad[16:], 65)
	c.fails(bad, 256, "service has 65 bytes")
	bad = packet(744, 5)
	le.PutUint32(bad[24:], 2)
	c.fails(bad, 256, "OVERLAP stands beside ORDERED")
	le.PutUint32(bad[24:], 4)
	c.fails(bad, 256, "flags 0x4")
	bad = packet(32, 2)
	le.PutUint64(bad[16:], 4096)
	le.PutUint32(bad[24:], 1)
	c.fails(bad, 256, "descriptor")
}

// TestABIVersionOne: a client of version 1 is told in its own JSON (A2.3).
func TestABIVersionOne(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := connectABI(t, a, eras[1])
	text := `{"id":1,"kind":"hello","version":1,"pid":77,"depth":1024,"name":"old"}`
	must(t, unix.Sendmsg(c.fd, []byte(text), nil, nil, unix.MSG_NOSIGNAL))
	b := make([]byte, 2048)
	var n int
	err := uninterrupted(func() (err error) { n, _, err = unix.Recvfrom(c.fd, b, 0); return err })
	if got := string(b[:max(n, 0)]); err != nil || !strings.HasPrefix(got,
		`{"id":1,"kind":"hello","error":{"code":"version","text":"the client speaks version 1, this daemon 2 to 2`) {
		t.Fatalf("%q, %v", got, err)
	}
}
