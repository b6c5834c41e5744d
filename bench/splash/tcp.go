package splash

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/edge/dsm"
)

// mesh is what a rank has to meet the others over TCP with cubic, on the links that edge uses.
type mesh struct {
	job *job
	l   net.Listener
}

const tcpPort = "9471"

func (j *job) newMesh() *mesh {
	return &mesh{j, kit.Get(net.Listen("tcp", net.JoinHostPort(j.Addresses[j.Rank], tcpPort)))}
}

func (m *mesh) close() { _ = m.l.Close() }

// connect makes two connections with each other rank: over to this one asks it, over from it asks this one.
func (m *mesh) connect(ctx context.Context) (to, from []*net.TCPConn) {
	to, from = make([]*net.TCPConn, m.job.Ranks), make([]*net.TCPConn, m.job.Ranks)
	var hello [1]byte
	for rank, address := range m.job.Addresses {
		if rank == m.job.Rank {
			continue
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, tcpPort))
		for errors.Is(err, syscall.ECONNREFUSED) { // it has not come so far
			time.Sleep(time.Millisecond)
			c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(address, tcpPort))
		}
		to[rank] = kit.Get(c, err).(*net.TCPConn)
		congestion(to[rank])
		hello[0] = byte(m.job.Rank)
		kit.Get(c.Write(hello[:]))
	}
	kit.Check(m.l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)))
	for range m.job.Ranks - 1 {
		c := kit.Get(m.l.Accept()).(*net.TCPConn)
		congestion(c)
		kit.Get(io.ReadFull(c, hello[:]))
		from[hello[0]] = c
	}
	return to, from
}

// run is dsm.Run over TCP.
func (m *mesh) run(ctx context.Context, size int, f func(*dsm.Memory)) {
	to, from := m.connect(ctx)
	kit.Check(dsm.RunTCP(ctx, dsm.Config{Rank: m.job.Rank, Ranks: m.job.Ranks, Size: size}, to, from,
		func(m *dsm.Memory) error { return kit.Try(func() { f(m) }) }))
}

// congestion has a connection use cubic, whatever the machine's default is.
func congestion(c *net.TCPConn) {
	var wrong error
	kit.Check(kit.Get(c.SyscallConn()).Control(func(fd uintptr) {
		wrong = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	}))
	kit.Checkf(wrong, "TCP with cubic")
}

// transportTurn is how many fetches go over one transport before it is the turn of the other. Programs use one. During
// the turn of the other all that serves it falls asleep, and for some milliseconds after that each fetch is slower:
// coldTurn is how many are compared by themselves, as what a program sees that computes for long between fetches.
const (
	transportTurn = 128
	coldTurn      = 16
)

// overTCP compares the fetch of a stale page with that of the same shared memory over TCP with cubic, and with asking
// rank 0 for 4 KiB over a connection: the least that shared memory over TCP would need for a page. In both a thread of
// rank 0 has to answer. All of what one transport does in its turn, barriers too, goes over that one alone.
func (t *mesh) overTCP(ctx context.Context, rounds int, m *dsm.Memory, a dsm.Array[byte]) (steps []Step) {
	beside := func(what string, base func(int) time.Duration) {
		times := inTurn(rounds, transportTurn, fetchStale(m, a, 1), base)
		x, y := begins(times[0], transportTurn, coldTurn), begins(times[1], transportTurn, coldTurn) // median sorts
		steps = append(steps,
			Step{What: "fetch of a page", Time: median(times[0]), Beside: what, Base: median(times[1]), Goal: 0.6},
			Step{What: "fetch of a page after a pause", Time: median(x), Beside: what, Base: median(y), Goal: 0.6})
	}
	t.run(ctx, 1<<20, func(over *dsm.Memory) {
		b := dsm.Alloc[byte](over, page, dsm.At(0))
		beside("fetch by the same protocol over TCP cubic", fetchStale(over, b, 1))
		to, from := t.connect(ctx)
		if m.Rank() == 0 {
			go answer(from[1]) // until rank 1 closes
		}
		bytes := make([]byte, page)
		beside("page asked for over TCP cubic", behindWrite(over, b, 1, func() {
			kit.Get(to[0].Write(bytes[:16]))
			kit.Get(io.ReadFull(to[0], bytes))
		}))
		for rank := range to {
			if rank != m.Rank() {
				_, _ = to[rank].Close(), from[rank].Close()
			}
		}
	})
	return steps
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
