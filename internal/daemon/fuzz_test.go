package daemon

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// fuzzNodes are two daemons that live as long as the target: what one input does to them, the next one meets. At the
// first a server accepts and exports.
func fuzzNodes(f *testing.F) *Embedded {
	a, b := nodes(
		f,
		1,
		func(c *config.Config) { c.Limits = config.Limits{Requests: config.MaxLimit, Pinned: 64 << 20} },
	)
	server := attach(f, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "h"})
	region, _ := server.register(1 << 20)
	go server.serveAll(region)
	return b
}

// FuzzSubmissions lets a client with a connection, a region and a key write anything into its submission ring: 64 bytes
// an entry. Numbers that have to be guessed are filled in where the entry's reserved byte says so, so that what is
// behind the checks is reached. Others must not notice.
func FuzzSubmissions(f *testing.F) {
	b := fuzzNodes(f)
	entry := func(e ipc.SQE, fill byte) []byte {
		b := make([]byte, ipc.SQESize)
		ipc.EncodeSQE(b, &e)
		b[3] = fill
		return b
	}
	f.Add(entry(ipc.SQE{Op: ipc.OpWrite, Len: 4096, Token: 1}, 7))
	f.Add(append(entry(ipc.SQE{Op: ipc.OpRead, Len: 1 << 20, Token: 2}, 7),
		entry(ipc.SQE{Op: ipc.OpWrite, InlineLen: 24, Flags: ipc.FlagNotify}, 3)...))
	f.Add(entry(ipc.SQE{Op: ipc.OpWrite, LocalOff: 1<<64 - 8, Len: 8, RemoteOff: 1<<64 - 8}, 7))
	f.Add(entry(ipc.SQE{Op: ipc.OpCredit, Imm: 1}, 1))
	f.Add(append(entry(ipc.SQE{Op: ipc.OpReceive, Len: 64, Token: 3}, 5),
		entry(ipc.SQE{Op: ipc.OpSend, InlineLen: 8, RemoteOff: 1 << 20, Token: 4}, 1)...))
	f.Add(append(entry(ipc.SQE{Op: ipc.OpBytes, InlineLen: ipc.BytesPerEntry}, 1),
		entry(ipc.SQE{Op: ipc.OpWrite, InlineLen: 24, Token: 5}, 3)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, mem := raw(t, b, 64)
		defer c.close()
		region, _ := c.register(1 << 20)
		id := c.send(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "h"})
		m, err := c.reply(id)
		must(t, err)
		key := c.event(ipc.KindAdvert).Key
		tail := uint32(0)
		for ; len(in) >= ipc.SQESize && tail < 64; in = in[ipc.SQESize:] {
			at := mem[offSQ+int(tail)*ipc.SQESize:][:ipc.SQESize]
			copy(at, in)
			fill := at[3]
			at[3] = fill &^ 7
			if fill&1 != 0 {
				binary.LittleEndian.PutUint32(at[4:], m.Conn)
			}
			if fill&2 != 0 {
				binary.LittleEndian.PutUint64(at[24:], key)
			}
			if fill&4 != 0 {
				binary.LittleEndian.PutUint32(at[40:], region)
			}
			tail++
		}
		binary.LittleEndian.PutUint32(mem[offSQTail:], tail)
		c.bell.Ring()
		if err := b.d.shard.Do(func(mono.Time) {}); err != nil { // an iteration has passed, and with it the entries
			t.Fatal(err)
		}
		stillServes(t, b)
	})
}

// FuzzRequests sends any packets to the control socket: each is two bytes of length, and then so many.
func FuzzRequests(f *testing.F) {
	b := fuzzNodes(f)
	packet := func(m *ipc.Message) []byte {
		p, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		return append(binary.LittleEndian.AppendUint16(nil, uint16(len(p))), p...)
	}
	hello := packet(ipc.Hello(8))
	f.Add(hello)
	for _, m := range []ipc.Message{
		{ID: 2, Kind: ipc.KindRegister, Size: 4096},
		{ID: 2, Kind: ipc.KindRegister, Size: 4096, Brought: ipc.Brought{Own: true}},
		{ID: 3, Kind: ipc.KindDial, Peer: "a", Service: "h", Data: []byte("x"), Timeout: time.Millisecond},
		{ID: 4, Kind: ipc.KindExport, Conn: 1, Region: 1 << 16, Size: 1 << 63, Off: 1 << 63,
			Perm: uint8(regmem.RemoteWrite), Name: "n"},
		{ID: 5, Kind: ipc.KindStatus, What: "conn", Page: 1 << 40},
		{ID: 6, Kind: ipc.KindPing, Peer: "a", Count: 1},
		{ID: 7, Kind: 9999},
		{ID: 8, Kind: ipc.KindClose, Answer: true},
	} {
		f.Add(append(bytes.Clone(hello), packet(&m)...))
	}
	f.Add([]byte("\x2c\x00" + `{"id":9,"kind":"hello","version":1,"depth":8}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		conn, err := fileConn(fds[0])
		must(t, err)
		b.d.serve(conn)
		for sent := 0; len(in) > 2 && sent < 16; sent++ {
			p := in[2:]
			p = p[:min(len(p), int(binary.LittleEndian.Uint16(in)))]
			in = in[2+len(p):]
			if len(p) > 5 && ipc.Kind(binary.LittleEndian.Uint16(p[4:])) == ipc.KindDrain {
				continue // a daemon that drains serves nobody
			}
			if unix.Send(fds[1], p, unix.MSG_NOSIGNAL) != nil {
				break
			}
		}
		unix.Shutdown(fds[1], unix.SHUT_WR)
		var buf [1]byte
		for { // until everything was answered and the daemon has hung up
			n, _, _, _, err := unix.Recvmsg(fds[1], buf[:], nil, 0)
			if err == nil && n == 0 || err != nil && err != unix.EINTR {
				break
			}
		}
		unix.Close(fds[1])
		stillServes(t, b)
	})
}

// stillServes asks the shard for something.
func stillServes(t *testing.T, e *Embedded) {
	t.Helper()
	if _, err := e.Daemon().Snapshot(); err != nil {
		t.Fatal(err)
	}
}
