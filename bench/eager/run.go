package eager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// parts is how often each way has its turn: what else runs on the host disturbs all of them alike.
const parts = 8

// hello is what the client tells the server: the games of a connection, in their order, and how many rounds each has.
type hello struct {
	Size, Compose, Marks, Rounds int
}

// Run measures. show is called now and then with what is being done and how far that is.
func Run(ctx context.Context, d *edge.Device, s Spec, show func(string, float64)) (*Result, error) {
	switch {
	case s.Rounds < parts || s.Rounds > 1e6 || s.Marks < 1 || len(s.Sizes) == 0 || len(s.Compose) == 0:
		return nil, fmt.Errorf("%d rounds with %d marks; choose %d to 1000000 and 1 at least", s.Rounds, s.Marks, parts)
	case slices.Min(s.Sizes) < line || slices.Max(s.Sizes) > edge.MaxEager || slices.Min(s.Compose) < 0:
		return nil, fmt.Errorf("messages of %v bytes; choose %d to %d", s.Sizes, line, edge.MaxEager)
	}
	res := &Result{Spec: s}
	for i, compose := range s.Compose {
		for k, size := range s.Sizes {
			share := float64(i*len(s.Sizes)+k) / float64(len(s.Sizes)*len(s.Compose))
			show(fmt.Sprintf("MTU %d, %d bytes, %d ns for each KiB", s.MTU, size, compose), share)
			rows, err := s.play(ctx, d, size, compose)
			if err != nil {
				return nil, fmt.Errorf("%d bytes: %w", size, err)
			}
			res.Rows = append(res.Rows, rows...)
		}
	}
	return res, nil
}

// play measures all ways of one size, by turns.
func (s *Spec) play(ctx context.Context, d *edge.Device, size, compose int) ([]Row, error) {
	h := hello{size, compose, s.Marks, s.Rounds / parts}
	data, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	c, err := d.Dial(ctx, s.Peer, service, edge.Data(data))
	if err != nil {
		return nil, err
	}
	p, err := newPlayer(d, c, size)
	if err != nil {
		return nil, errors.Join(err, c.Abort())
	}
	rows := make([]Row, len(Ways))
	var rec [4][]*report.Recorder
	for i := range rec {
		for range Ways {
			rec[i] = append(rec[i], report.NewRecorder())
		}
	}
	n := uint32(0)
	err = h.games(func(g *game) error {
		n++
		start := mono.Now()
		t, err := p.send(ctx, g, n)
		if err == nil {
			err = p.receive(ctx, n, size)
		}
		if err == nil && n > uint32(h.Rounds) { // the first game warms up
			for i, took := range []time.Duration{t.user, t.copied, t.post, mono.Now().Sub(start) / 2} {
				rec[i][g.Way].Record(took)
			}
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, c.Abort())
	}
	for i, way := range Ways {
		rows[i] = Row{Bytes: size, Way: way, Compose: compose, UserData: rec[0][i].Summary(1),
			Copy: rec[1][i].Summary(1), Post: rec[2][i].Summary(1), Turn: rec[3][i].Summary(1)}
	}
	return rows, p.close()
}

// games calls turn for every message of one end.
func (h *hello) games(turn func(*game) error) error {
	for part := range parts + 1 {
		for way := range Ways {
			if part == 0 && way > 0 {
				break
			}
			g := game{h.Size, h.Compose, h.Marks, way}
			for range h.Rounds {
				if err := turn(&g); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Serve plays with whoever comes, until ctx ends. started is called when clients may come.
func Serve(ctx context.Context, d *edge.Device, started func()) error {
	l, err := d.Listen(ctx, service)
	if err != nil {
		return err
	}
	started()
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		if err := answer(ctx, d, c); err != nil {
			return err
		}
	}
}

func answer(ctx context.Context, d *edge.Device, c *edge.Conn) error {
	var h hello
	if err := json.Unmarshal(c.Data(), &h); err != nil || h.Size < line || h.Size > edge.MaxEager || h.Marks < 1 {
		c.Abort()
		return fmt.Errorf("a client asks for %q", c.Data())
	}
	p, err := newPlayer(d, c, h.Size)
	if err != nil {
		return errors.Join(err, c.Abort())
	}
	n := uint32(0)
	err = h.games(func(g *game) error {
		n++
		if err := p.receive(ctx, n, h.Size); err != nil {
			return err
		}
		_, err := p.send(ctx, g, n)
		return err
	})
	if err != nil {
		return errors.Join(err, c.Abort())
	}
	return p.close()
}
