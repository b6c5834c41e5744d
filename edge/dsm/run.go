package dsm

import (
	"context"
	"errors"
	"sync/atomic"
)

// Run takes part in a run as one rank: it finds the others, calls f, and returns when all ranks have returned from
// theirs. The error is that of f, or says what was wrong, here or at another rank (ErrRank). The memory is gone then.
// If ctx ends, the run fails.
func Run(ctx context.Context, c Config, f func(*Memory) error) error {
	if err := c.complete(); err != nil {
		return err
	}
	if c.Ranks == 1 {
		m := newMemory(&c, nil)
		m.mem = make([]byte, c.Size)
		return m.run(f)
	}
	l, err := join(ctx, &c)
	if err != nil {
		return err
	}
	left := false
	leave := func(err error) {
		if !left {
			left = true
			l.leave(err)
		}
	}
	defer leave(errPanic)
	if err = protect(func() error { return runOver(&c, l, f) }); err != nil {
		if cause := context.Cause(l.ctx); cause != nil && ctx.Err() != nil {
			err = cause
		}
	}
	leave(err)
	return err
}

// errPanic is what others are told about a rank whose function panicked.
var errPanic = errors.New("its function panicked")

// runOver is a rank's part in a run over a transport.
func runOver(c *Config, t transport, f func(*Memory) error) error {
	var g *guard
	if c.Checked {
		var err error
		if g, err = newGuard(t, c.Rank); err != nil {
			return err
		}
		defer g.close()
		t = g
	}
	m := newMemory(c, t)
	m.guard = g
	if g != nil {
		return m.catch(func() error { return m.run(f) })
	}
	return m.run(f)
}

// run calls f and waits for the others.
func (m *Memory) run(f func(*Memory) error) error {
	return protect(func() error {
		if err := f(m); err != nil {
			return err
		}
		m.finish()
		return nil
	})
}

// lastWords is what a rank that fails wrote about it into the control region.
func lastWords(ctl []byte, ending, rank int) string {
	at := ending + (16+maxText)*rank
	n := min(atomic.LoadUint64(word(ctl, at)), maxText)
	return string(ctl[at+16 : at+16+int(n)])
}
