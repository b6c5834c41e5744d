//go:build ctest

package drive

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/edge"
)

const unlisten, accept, revoke, featureMemory = 7, 8, 11, 1

// rogues serves every client of the socket that it returns by a rogue.
func rogues(t *testing.T, s spoil, seed int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			r := &rogue{t: t, conn: c, spoil: s, dice: rand.New(rand.NewSource(seed))}
			go r.serve()
		}
	}()
	return path
}

// oddly runs a role of odd.c with a rogue for its daemon.
func oddly(t *testing.T, role string, s spoil, args ...string) {
	t.Helper()
	startProgram(t, "odd", rogues(t, s, 0), append([]string{role}, args...)...).ends()
}

// Memory that could not be adopted in time is the program's at once, which may unmap it before the daemon answers.
func TestAdoptInVain(t *testing.T) {
	t.Parallel()
	oddly(t, "adopt", spoil{reply: func(r *rogue, kind uint16, m []byte, fds []int) ([]byte, []int) {
		if kind == hello {
			le.PutUint64(m[24:], featureMemory)
		}
		if kind == register {
			return nil, nil
		}
		return m, fds
	}})
}

func TestDescriptorsExhausted(t *testing.T) {
	t.Parallel()
	oddly(t, "scarce", spoil{})
}

func TestDaemonIsSilent(t *testing.T) {
	t.Parallel()
	oddly(t, "silent", spoil{after: later(hello, func(r *rogue) { r.word(pulse, 1) })})
}

func TestForkDuringOpen(t *testing.T) {
	t.Parallel()
	oddly(t, "opening", spoil{reply: at(hello, func(*rogue, []byte, []int) ([]byte, []int) { return nil, nil })})
}

func TestConnectionIsDialled(t *testing.T) {
	t.Parallel()
	oddly(t, "dialling", spoil{reply: at(dial, func(*rogue, []byte, []int) ([]byte, []int) { return nil, nil })})
}

// An export that the program has freed is nothing to a late answer about it.
func TestRevokedTooLate(t *testing.T) {
	t.Parallel()
	var late []byte
	oddly(t, "revokes", spoil{reply: func(r *rogue, kind uint16, m []byte, fds []int) ([]byte, []int) {
		if kind == revoke {
			late = m
			time.Sleep(100 * time.Millisecond) // until nobody waits for it
			end := packet(closed, 0, 0, 1056)
			le.PutUint32(end[16:], rogueConn)
			r.send(end, nil)
			return nil, nil
		}
		if late != nil {
			r.send(late, nil)
			late = nil
		}
		return m, fds
	}})
}

// Two peers ask for a stream, and there is room for one. It comes to nothing.
func TestBacklogGoesOn(t *testing.T) {
	t.Parallel()
	accepted := 0
	oddly(t, "crowd", spoil{after: later(listen, func(r *rogue) {
		for conn := range uint32(2) {
			m := packet(incoming, 0, 0, 672)
			le.PutUint32(m[16:], 20+conn)
			str(m[24:], "crowd")
			str(m[90:], "peer")
			str(m[156:], "stream/1")
			r.send(m, nil)
		}
	}), reply: at(accept, func(r *rogue, m []byte, fds []int) ([]byte, []int) {
		if accepted++; accepted > 1 {
			return m, fds
		}
		f := packet(accept, 3, le.Uint64(m[8:]), 1056)
		le.PutUint32(f[16:], 16) // the peer died meanwhile
		return f, nil
	})})
}

// A program that waits for any of its operations is woken when a quarter of those in flight have ended. When one of its
// threads waits for a certain operation, it is woken for each (ABI A8.8).
func TestPatience(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "hurry")
	must(t, unix.Mkfifo(fifo, 0o600))
	attend := func(r *rogue) {
		word := func(at int) int { return int(le.Uint32(r.rings[at:])) }
		sleeps := func() bool { return word(cqHead) == int(r.cq) && word(clientAsleep) != 0 }
		const same = 3 // what the test writes in place of 1: who sleeps since
		steps := []struct {
			asks, asleep int
			ends         []int // nil: somebody begins to wait for the operation 1
		}{
			{8, 1, []int{0, 2, 3, 4, 5, 6, 7, 8}}, {6, 1, nil}, {1, same, []int{9}}, {1, 1, []int{1}},
			{5, 1, []int{10, 11}}, {5, 1, []int{12}}, {4, 1, []int{13}},
		}
		for i, step := range steps {
			for start := time.Now(); !sleeps() || word(awaits) != step.asks; time.Sleep(time.Millisecond) {
				if time.Since(start) > 10*time.Second {
					t.Errorf("step %d: the program sleeps: %v; it waits for %d operations, want %d", i, sleeps(),
						word(awaits), step.asks)
					r.conn.Close()
					return
				}
			}
			if is := word(clientAsleep); is != step.asleep {
				t.Errorf("step %d: the word of its sleep is %d, want %d", i, is, step.asleep)
			}
			if step.ends == nil {
				r.word(clientAsleep, same)
				f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
				must(t, err)
				f.Close()
				continue
			}
			for _, op := range step.ends {
				r.put(1, rogueConn, le.Uint64(r.rings[ringsStart+64*op+16:]), 0, 0)
			}
			r.word(cqTail, r.cq)
			r.word(clientAsleep, 0)
			r.advert("wake", 1)
		}
	}
	path := rogues(t, spoil{after: later(dial, func(r *rogue) { go attend(r) })}, 0)
	startProgram(t, "patient", path, "patient", fifo).ends()
}

func TestWorkBesideStream(t *testing.T) {
	a, _ := hosts(t)
	startProgram(t, "patient", a.cfg.Socket, "beside").ends()
}

func TestOddOrders(t *testing.T) {
	a, _ := hosts(t)
	for _, args := range [][]string{{"zero"}, {"lend"}, {"order", "30"}, {"forks", "200"}, {"loop", "5000"}, {"alone"},
		{"dozes", "2000"}, {"blocks", "5000"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			startProgram(t, "odd", a.cfg.Socket, args...).ends()
		})
	}
}

// A connection's end that nobody waits for is an orderly one.
func TestEndNobodyWaitsFor(t *testing.T) {
	a, _ := hosts(t)
	startProgram(t, "ends", a.cfg.Socket, "leaves").ends()
}

// A service that is closed while a new daemon is asked to offer it is withdrawn there, whatever the answer will be.
func TestListenerClosedAfterRestart(t *testing.T) {
	t.Parallel()
	var daemons atomic.Int32
	withdrawn := make(chan bool, 1)
	startProgram(t, "ends", rogues(t, spoil{reply: func(_ *rogue, kind uint16, m []byte, fds []int) ([]byte, []int) {
		switch {
		case kind == hello:
			daemons.Add(1)
		case kind == register, kind == listen && daemons.Load() == 2:
			return nil, nil
		case kind == unlisten:
			withdrawn <- true
		}
		return m, fds
	}, after: later(register, func(r *rogue) { r.conn.Close() })}, 0), "withdraws").ends()
	select {
	case <-withdrawn:
	case <-time.After(5 * time.Second):
		t.Error("the new daemon still offers the service")
	}
}

func TestDaemonLostAfterListen(t *testing.T) {
	t.Parallel()
	var listens atomic.Int32
	startProgram(t, "ends", rogues(t, spoil{after: later(listen, func(r *rogue) {
		if listens.Add(1)%2 == 1 {
			r.conn.Close()
		}
	})}, 0), "answered", "20").ends()
}

// A program that is in one call while the daemon restarts is told of both, the loss and the return.
func TestRestartDuringACall(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	server := startProgram(t, "ends", a.cfg.Socket, "blocked")
	server.says("ready")
	a.stop()
	a.start()
	d := b.open()
	var c *edge.Conn
	for c == nil { // until the program has offered its service again
		var err error
		if c, err = d.Dial(ctx, "a", "kept"); err != nil && !errors.Is(err, edge.ErrNoService) &&
			!errors.Is(err, edge.ErrPeerDown) && !errors.Is(err, edge.ErrPeerUnknown) {
			t.Fatal(err)
		}
	}
	server.ends()
}
