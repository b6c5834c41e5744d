package splash

import (
	"context"
	"time"

	"multiedge/internal/lab"
)

// cutter cuts the links of a lab in turn, so that one at least is whole.
type cutter struct {
	cancel context.CancelFunc
	done   chan struct{}
	cuts   int
	err    error
}

// A link is cut for so long, and then all are whole for as long.
const cutTime = 60 * time.Millisecond

func cut(ctx context.Context, l *lab.Lab) *cutter {
	ctx, cancel := context.WithCancel(ctx)
	c := &cutter{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for c.err == nil && ctx.Err() == nil {
			link := l.Link(c.cuts % l.Links())
			c.cuts++
			if c.err = link.Cut(true); c.err == nil {
				pause(ctx)
				c.err = link.Cut(false)
			}
			pause(ctx)
		}
	}()
	return c
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(cutTime):
	}
}

// stop returns how often a link was cut, when all are whole again.
func (c *cutter) stop() (int, error) {
	c.cancel()
	<-c.done
	return c.cuts, c.err
}
