package dsm

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/edge"
)

// mesh connects ranks over loopback: to[a][b] is what a asks b over, the other end is from[b][a].
func mesh(t *testing.T, ranks int) (to, from [][]*net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range ranks {
		to, from = append(to, make([]*net.TCPConn, ranks)), append(from, make([]*net.TCPConn, ranks))
	}
	for a := range ranks {
		for b := range ranks {
			if a == b {
				continue
			}
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			other, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			to[a][b], from[b][a] = c.(*net.TCPConn), other.(*net.TCPConn)
		}
	}
	return to, from
}

// overLoopback runs f as all ranks of a run over TCP, and returns how each ended.
func overLoopback(t *testing.T, c Config, f func(*Memory) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	to, from := mesh(t, c.Ranks)
	errs := make([]error, c.Ranks)
	var wg sync.WaitGroup
	for rank := range c.Ranks {
		c := c
		c.Rank = rank
		wg.Go(func() { errs[rank] = RunTCP(ctx, c, to[rank], from[rank], f) })
	}
	wg.Wait()
	return errs
}

// Random programs without data races find over TCP what their sequential runs find.
func TestRandomOverTCP(t *testing.T) {
	for seed := range uint64(12) {
		p, c := newProgram(seed)
		for rank, err := range overLoopback(t, c, func(m *Memory) error { return p.run(m, func(*Memory) {}) }) {
			if err != nil {
				t.Errorf("seed %d, rank %d: %v", seed, rank, err)
			}
		}
	}
}

// A rank that fails is lost for the others, whatever they wait for.
func TestRankIsLostOverTCP(t *testing.T) {
	own := errors.New("no more bananas")
	errs := overLoopback(t, Config{Ranks: 3, Size: 1 << 16}, func(m *Memory) error {
		m.Barrier()
		if m.rank == 1 {
			return own
		}
		m.Lock(0)
		m.Barrier()
		return nil
	})
	for rank, err := range errs {
		if lost := errors.Is(err, ErrRank) && strings.Contains(err.Error(), "rank"); rank == 1 && err != own ||
			rank != 1 && !lost {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank that asks for what is not there ends the run.
func TestRequestsAreChecked(t *testing.T) {
	for _, o := range []order{{verb: read, area: data, there: 1 << 16, n: 1}, {verb: read, there: 1 << 62, n: 1 << 62},
		{verb: write, area: data, there: 1<<16 - 4, n: 8}, {verb: swap, there: 1 << 40, was: new(uint64)}, {verb: 9},
		{verb: swap, there: 4, was: new(uint64)}, {verb: swap, area: data, was: new(uint64)},
		{verb: read, there: -8, n: 8}} {
		errs := overLoopback(t, Config{Ranks: 2, Size: 1 << 16}, func(m *Memory) error {
			if m.rank == 1 {
				m.post(0, o)
				m.wait()
			}
			m.Barrier()
			return nil
		})
		if err := errs[0]; !errors.Is(err, errRequest) || !errors.Is(err, ErrRank) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A rank whose function panics ends the others' run, and its memory stays until nobody uses it.
func TestPanicOverTCP(t *testing.T) {
	to, from := mesh(t, 2)
	panicked := make(chan any)
	go func() {
		defer func() { panicked <- recover() }()
		_ = RunTCP(context.Background(), Config{Rank: 0, Ranks: 2, Size: 1 << 16}, to[0], from[0],
			func(m *Memory) error { m.Barrier(); panic("enough") })
	}()
	err := RunTCP(context.Background(), Config{Rank: 1, Ranks: 2, Size: 1 << 16}, to[1], from[1],
		func(m *Memory) error {
			m.Barrier()
			m.Barrier()
			return nil
		})
	if what := <-panicked; what != "enough" || !errors.Is(err, ErrRank) {
		t.Errorf("panicked with %v, the other: %v", what, err)
	}
}

func TestConnectionsOverTCP(t *testing.T) {
	to, from := mesh(t, 2)
	for _, c := range [][2][]*net.TCPConn{{to[0][:1], from[0]}, {to[0], make([]*net.TCPConn, 2)}} {
		err := RunTCP(context.Background(), Config{Rank: 0, Ranks: 2, Size: 1 << 16}, c[0], c[1],
			func(*Memory) error { return nil })
		if !errors.Is(err, edge.ErrInvalid) {
			t.Errorf("%d and %d connections: %v", len(c[0]), len(c[1]), err)
		}
	}
}
