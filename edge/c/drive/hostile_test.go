//go:build ctest

package drive

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// rogue is a daemon that obliges its client in everything (docs/ABI.md) but for what spoils it.
type rogue struct {
	t     *testing.T
	conn  *net.UnixConn
	spoil spoil
	rings []byte
	depth uint32
	cq    uint32 // entries made
	dice  *rand.Rand
}

// spoil is what a rogue does wrong; it is asked about each answer, in order.
type spoil struct {
	name  string
	reply func(r *rogue, kind uint16, m []byte, fds []int) ([]byte, []int) // nil: none
	after func(r *rogue, kind uint16)                                      // the answer was sent
	want  string                                                           // that the client must say; empty: anything
}

const (
	hello, register, mapped, dial, listen, export                   = 1, 2, 3, 5, 6, 10
	incoming, advert, ended, closed                                 = 64, 65, 67, 68
	shrink                                                          = unix.F_SEAL_SHRINK
	sealed                                                          = shrink | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	depth, rogueConn                                                = 64, 7
	sqHead, cqTail, cqHead, clientAsleep, awaits, pulse, ringsStart = 128, 256, 384, 640, 704, 896, 4096
)

var le = binary.LittleEndian

func memory(t *testing.T, size int64, seals int) int {
	fd, err := unix.MemfdCreate("rogue", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	must(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	must(t, err)
	return fd
}

// packet is a struct of so many bytes, with its header.
func packet(kind, flags uint16, id uint64, size int) []byte {
	m := make([]byte, size)
	le.PutUint32(m, uint32(size))
	le.PutUint16(m[4:], kind)
	le.PutUint16(m[6:], flags)
	le.PutUint64(m[8:], id)
	return m
}

func str(m []byte, s string) {
	le.PutUint16(m, uint16(len(s)))
	copy(m[2:], s)
}

func (r *rogue) send(m []byte, fds []int) {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	r.conn.WriteMsgUnix(m, rights, nil) // the client may have gone
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// answer is what a good daemon says to a request.
func (r *rogue) answer(kind uint16, id uint64, asked []byte) (m []byte, fds []int) {
	switch kind {
	case hello:
		m = packet(kind, 1, id, 184)
		le.PutUint32(m[16:], 2)
		le.PutUint32(m[20:], depth)
		le.PutUint32(m[32:], depth)
		le.PutUint32(m[36:], 4*depth)
		le.PutUint16(m[40:], 64)
		le.PutUint16(m[42:], 32)
		rings := memory(r.t, ringsStart+depth*64+4*depth*32, sealed)
		var err error
		r.rings, err = unix.Mmap(rings, 0, ringsStart, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			unix.Munmap(r.rings)
			r.rings, err = unix.Mmap(rings, 0, ringsStart+depth*64+4*depth*32, unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_SHARED)
		}
		must(r.t, err)
		bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		must(r.t, err)
		watch, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		must(r.t, err)
		fds = []int{rings, bell, watch}
	case register:
		size := (int64(le.Uint64(asked[16:])) + 4095) &^ 4095
		m = packet(kind, 1, id, 32)
		le.PutUint64(m[16:], uint64(size))
		le.PutUint32(m[24:], 5)
		fds = []int{memory(r.t, size, shrink)}
	case dial:
		m = packet(kind, 1, id, 608)
		le.PutUint32(m[16:], rogueConn)
		str(m[90:], "stream/1")
	case export:
		m = packet(kind, 1, id, 40)
		le.PutUint64(m[16:], 99)
		le.PutUint32(m[32:], rogueConn)
	default:
		m = packet(kind, 1, id, 16)
	}
	return m, fds
}

// complete puts an entry into the completion ring, and shows it.
func (r *rogue) complete(kind byte, conn uint32, token uint64, imm, length uint32) {
	r.put(kind, conn, token, imm, length)
	r.word(cqTail, r.cq)
}

func (r *rogue) put(kind byte, conn uint32, token uint64, imm, length uint32) {
	e := r.rings[ringsStart+depth*64+int(r.cq%(4*depth))*32:][:32]
	clear(e)
	e[0] = kind
	le.PutUint32(e[4:], conn)
	le.PutUint64(e[8:], token)
	le.PutUint32(e[16:], imm)
	le.PutUint32(e[20:], length)
	r.cq++
}

func (r *rogue) word(at int, v uint32) { le.PutUint32(r.rings[at:], v) }

func (r *rogue) advert(name string, size uint64) {
	m := packet(advert, 0, 0, 120)
	le.PutUint64(m[16:], 3)
	le.PutUint64(m[24:], size)
	le.PutUint32(m[32:], rogueConn)
	le.PutUint32(m[36:], 3)
	str(m[48:], name)
	r.send(m, nil)
}

func (r *rogue) serve() {
	defer r.conn.Close()
	buf := make([]byte, 4096)
	for {
		n, _, _, _, err := r.conn.ReadMsgUnix(buf, make([]byte, 256))
		if err != nil || n < 16 {
			return
		}
		kind, id := le.Uint16(buf[4:]), le.Uint64(buf[8:])
		m, fds := r.answer(kind, id, buf[:n])
		if r.spoil.reply != nil {
			m, fds = r.spoil.reply(r, kind, m, fds)
		}
		if m != nil {
			r.send(m, fds)
		}
		if kind == dial {
			r.advert("mem", 4096)
			r.advert("stream", 4096)
		}
		if r.spoil.after != nil {
			r.spoil.after(r, kind)
		}
	}
}

// at makes a reply function that changes the answer to one kind.
func at(kind uint16, change func(r *rogue, m []byte, fds []int) ([]byte, []int)) func(*rogue, uint16, []byte,
	[]int) ([]byte, []int) {
	return func(r *rogue, k uint16, m []byte, fds []int) ([]byte, []int) {
		if k == kind {
			return change(r, m, fds)
		}
		return m, fds
	}
}

// put makes one that writes a number over the answer.
func put(kind uint16, off, bytes int, v uint64) func(*rogue, uint16, []byte, []int) ([]byte, []int) {
	return at(kind, func(_ *rogue, m []byte, fds []int) ([]byte, []int) {
		var b [8]byte
		le.PutUint64(b[:], v)
		copy(m[off:off+bytes], b[:])
		return m, fds
	})
}

// later makes an after function for one kind.
func later(kind uint16, do func(*rogue)) func(*rogue, uint16) {
	return func(r *rogue, k uint16) {
		if k == kind {
			do(r)
		}
	}
}

// lost: the client ends the attachment; it may have attached anew before it uses what it registered.
const lost = "use -1002|use -1004"

var spoils = []spoil{
	{name: "obliges", want: "use -1003|use -12"}, // nobody completes what is posted
	{name: "says nothing", reply: at(hello, func(_ *rogue, _ []byte, fds []int) ([]byte, []int) { return nil, nil }),
		want: "open -12"},
	{name: "hangs up", reply: at(hello, func(r *rogue, _ []byte, _ []int) ([]byte, []int) {
		r.conn.Close()
		return nil, nil
	}), want: "open -1002"},
	{name: "a packet of 3 bytes", reply: at(hello, func(_ *rogue, m []byte, _ []int) ([]byte, []int) {
		return m[:3], nil
	}), want: "open -1002"},
	{name: "a wrong size", reply: put(hello, 0, 4, 999), want: "open -1002"},
	{name: "no descriptors", reply: at(hello, func(_ *rogue, m []byte, _ []int) ([]byte, []int) { return m, nil }),
		want: "open -264"},
	{name: "one descriptor", reply: at(hello, func(_ *rogue, m []byte, fds []int) ([]byte, []int) {
		return m, fds[:1]
	}), want: "open -264"},
	{name: "four descriptors", reply: at(hello, func(r *rogue, m []byte, fds []int) ([]byte, []int) {
		return m, append(fds, memory(r.t, 1, 0))
	})},
	{name: "rings that can shrink", reply: at(hello, func(r *rogue, m []byte, fds []int) ([]byte, []int) {
		fds[0] = memory(r.t, ringsStart+depth*64+4*depth*32, unix.F_SEAL_GROW)
		return m, fds
	}), want: "open -264"},
	{name: "short rings", reply: at(hello, func(r *rogue, m []byte, fds []int) ([]byte, []int) {
		fds[0] = memory(r.t, ringsStart, sealed)
		return m, fds
	}), want: "open -264"},
	{name: "a submission ring of nothing", reply: put(hello, 32, 4, 0), want: "open -264"},
	{name: "a completion ring of everything", reply: put(hello, 36, 4, 1<<31), want: "open -264"},
	{name: "version 9", reply: put(hello, 16, 4, 9), want: "open -264"},
	{name: "features that nobody wanted", reply: put(hello, 24, 8, 1<<60), want: "open -264"},
	{name: "text longer than its room", reply: at(hello, func(_ *rogue, m []byte, _ []int) ([]byte, []int) {
		f := packet(hello, 3, le.Uint64(m[8:]), 40)
		le.PutUint32(f[16:], 263)
		le.PutUint16(f[24:], 0xffff)
		return f, nil
	}), want: "open -263"},
	{name: "no memory", reply: at(register, func(_ *rogue, m []byte, _ []int) ([]byte, []int) { return m, nil }),
		want: "use -264"},
	{name: "more memory than there is", reply: put(register, 16, 8, 1<<40), want: "use -264"},
	{name: "less memory than asked for", reply: put(register, 16, 8, 4096), want: "use -264"},
	{name: "memory that can shrink", reply: at(register, func(r *rogue, m []byte, _ []int) ([]byte, []int) {
		return m, []int{memory(r.t, 8192, unix.F_SEAL_GROW)}
	}), want: "use -264"},
	{name: "a completion tail beyond the ring", after: later(mapped, func(r *rogue) { r.word(cqTail, 5000) }),
		want: lost},
	{name: "a submission head from the future", after: later(dial, func(r *rogue) { r.word(sqHead, 5000) })},
	{name: "a completion of nothing", after: later(mapped, func(r *rogue) { r.complete(1, 0, 1<<32, 0, 0) }),
		want: lost},
	{name: "a completion of slot 1000", after: later(mapped, func(r *rogue) { r.complete(1, 0, 1<<32|1000, 0, 0) }),
		want: lost},
	{name: "an entry of no kind", after: later(mapped, func(r *rogue) { r.complete(77, 0, 0, 0, 0) }),
		want: lost},
	{name: "a message in a buffer that was not posted", after: later(mapped, func(r *rogue) {
		r.complete(3, 0, 1<<32|depth, 0, 0)
	}), want: lost},
	{name: "a message in the slot of an operation", after: later(mapped, func(r *rogue) {
		r.complete(3, 0, 1<<32, 0, 0)
	}), want: lost},
	{name: "a late failure of nothing", after: later(mapped, func(r *rogue) { r.complete(9, 0, 2<<32, 0, 0) }),
		want: lost},
	{name: "more notifications than credit", after: later(dial, func(r *rogue) {
		for range 250 {
			r.complete(2, rogueConn, 99, 0, 0)
		}
		for range 6000 { // while the client takes them
			r.complete(2, rogueConn, 99, 0, 0)
		}
	})},
	{name: "nonsense of streams", after: func(r *rogue, kind uint16) {
		if kind == export {
			for i := range uint32(4) {
				r.complete(2, rogueConn, 99, i<<30|12345, 1<<31)
			}
		}
	}},
	{name: "unknown connections", after: func(r *rogue, kind uint16) {
		for i := range uint32(50) {
			for _, k := range []uint16{incoming, advert, ended, closed, 66, 200} {
				m := packet(k, 0, 0, 1056)
				le.PutUint32(m[16:], i)
				le.PutUint32(m[24:], 0xffff)
				r.send(m, nil)
			}
		}
	}},
	{name: "5000 exports", after: later(dial, func(r *rogue) {
		for i := range 5000 {
			r.advert(fmt.Sprint(i), 1<<63-1)
		}
	})},
	{name: "answers that nobody waits for", after: func(r *rogue, kind uint16) {
		for id := range uint64(100) {
			r.send(packet(kind, 1, id<<20, 16), nil)
		}
	}},
	{name: "the same connection again", after: later(dial, func(r *rogue) {
		m := packet(incoming, 0, 0, 672)
		le.PutUint32(m[16:], rogueConn)
		str(m[24:], "service")
		r.send(m, nil)
		m = packet(dial, 1, 1, 608)
		le.PutUint32(m[16:], rogueConn)
		r.send(m, nil)
	})},
	{name: "descriptors that nobody asked for", reply: func(r *rogue, _ uint16, m []byte, fds []int) ([]byte,
		[]int) {
		if len(fds) == 0 {
			fds = []int{memory(r.t, 1, 0), memory(r.t, 1, 0), memory(r.t, 1, 0)}
		}
		return m, fds
	}},
}

// gamble is a daemon that throws dice over each answer, and over the rings.
func gamble(seed int64) spoil {
	return spoil{name: fmt.Sprint("seed ", seed), reply: func(r *rogue, kind uint16, m []byte, fds []int) ([]byte,
		[]int) {
		for range r.dice.Intn(4) {
			if at := 16 + r.dice.Intn(max(1, len(m)-16)); at < len(m) && (kind != hello || r.dice.Intn(8) == 0) {
				m[at] = byte(r.dice.Int())
			}
		}
		return m, fds
	}, after: func(r *rogue, kind uint16) {
		for range r.dice.Intn(3) {
			m := packet(uint16(60+r.dice.Intn(12)), 0, 0, 16+r.dice.Intn(1100))
			r.dice.Read(m[16:])
			if len(m) > 36 {
				le.PutUint32(m[16:], rogueConn)
				le.PutUint32(m[32:], rogueConn)
			}
			r.send(m, nil)
		}
		if r.rings != nil && kind != hello && r.dice.Intn(3) == 0 {
			r.complete(byte(2-r.dice.Intn(5)/4), rogueConn, r.dice.Uint64(), r.dice.Uint32(),
				r.dice.Uint32()>>r.dice.Intn(32))
		}
	}}
}

func TestHostileDaemon(t *testing.T) {
	all := spoils
	for seed := range int64(24) {
		all = append(all, gamble(seed))
	}
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			said := strings.TrimSpace(start(t, rogues(t, s, int64(i)), "hostile").ends())
			good := s.want == ""
			for _, want := range strings.Split(s.want, "|") {
				good = good || said == want
			}
			if !good {
				t.Errorf("the client says %q, not %q", said, s.want)
			}
		})
	}
}
