package splash

import (
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/edge/dsm"
)

// overTCP compares the fetch of a stale page with asking rank 0 for 4 KiB over TCP with cubic, on the same link: the
// least that shared memory over TCP would need for a page. There a thread of rank 0 has to answer.
func overTCP(rounds int, m *dsm.Memory, a dsm.Array[byte], address string) []Step {
	var c net.Conn
	switch m.Rank() {
	case 0:
		l := kit.Get(net.Listen("tcp", net.JoinHostPort(address, tcpPort)))
		defer l.Close()
		kit.Check(l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)))
		m.Barrier()
		c = kit.Get(l.Accept())
		go answer(c) // until rank 1 closes
	case 1:
		m.Barrier()
		c = kit.Get(net.Dial("tcp", net.JoinHostPort(address, tcpPort)))
	default:
		m.Barrier()
	}
	if c != nil {
		defer c.Close()
		congestion(c.(*net.TCPConn))
	}
	page := make([]byte, page)
	fetch := func(round int) (d time.Duration) {
		if m.Rank() == 0 {
			a.Set(0, byte(round))
		}
		m.Barrier()
		if m.Rank() == 1 {
			d = timed(func() { a.Read(0, len(page)) })
		}
		m.Barrier()
		return d
	}
	ask := func(int) (d time.Duration) {
		if m.Rank() == 1 {
			d = timed(func() {
				kit.Get(c.Write(page[:16]))
				kit.Get(io.ReadFull(c, page))
			})
		}
		m.Barrier()
		return d
	}
	x, y := alternate(rounds, fetch, ask)
	return []Step{{What: "fetch of a page", Time: x, Beside: "page asked for over TCP cubic", Base: y, Goal: 0.6}}
}

const tcpPort = "9471"

// congestion has a connection use cubic, whatever the machine's default is.
func congestion(c *net.TCPConn) {
	var wrong error
	kit.Check(kit.Get(c.SyscallConn()).Control(func(fd uintptr) {
		wrong = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	}))
	kit.Checkf(wrong, "TCP with cubic")
}

// answer sends a page for each 16 bytes.
func answer(c net.Conn) {
	b := make([]byte, page)
	for {
		if _, err := io.ReadFull(c, b[:16]); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}
