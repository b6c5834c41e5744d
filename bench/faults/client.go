package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
)

// client moves data over connections that it makes anew whenever they end.
type client struct {
	w     *worker
	tally *tally
	devMu sync.Mutex
	dev   *edge.Device // replaced when its daemon went away

	lives  sync.WaitGroup
	cancel context.CancelFunc // ends the present lives in good order
	number int                // of the next connection's name
	nameMu sync.Mutex
}

func runClient(ctx context.Context, w *worker) {
	before := thisRest()
	c := &client{w: w, tally: newTally()}
	kit.Get(c.device(ctx))
	w.emit(Event{Started: true})
	c.resume(ctx)
	w.wait(ctx, func(o Order) {
		switch o.Do {
		case DoMark:
			w.emit(Event{Window: c.tally.mark(o.Name)})
		case DoDrain:
			c.drain()
			w.emit(Event{Window: c.tally.mark("drain")})
			w.emit(Event{Drained: true})
		case DoResume:
			c.tally.mark("")
			c.resume(ctx)
		}
	})
	c.drain()
	c.devMu.Lock()
	c.dev.Close()
	c.devMu.Unlock()
	rest := settle(before)
	w.emit(Event{Rest: &rest})
}

// device returns a living Device, made anew when the one before has died.
func (c *client) device(ctx context.Context) (*edge.Device, error) {
	c.devMu.Lock()
	defer c.devMu.Unlock()
	if c.dev != nil && c.dev.Err() == nil {
		return c.dev, nil
	}
	dev, err := edge.Open(ctx, edge.Config{Socket: c.w.job.Socket})
	if err != nil {
		return nil, err
	}
	if c.dev != nil {
		c.dev.Close()
	}
	c.dev = dev
	return dev, nil
}

func (c *client) resume(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	for range c.w.job.Conns {
		c.lives.Go(func() { c.live(ctx) })
	}
}

func (c *client) drain() {
	c.cancel()
	c.lives.Wait()
}

// redialPause is between attempts to connect.
const redialPause = 10 * time.Millisecond

// live keeps one connection, one lane after another, until ctx ends.
func (c *client) live(ctx context.Context) {
	for again := false; ctx.Err() == nil; {
		l, err := c.open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.tally.dialFailed(err)
				sleep(ctx, redialPause)
			}
			continue
		}
		c.tally.dialled(again)
		again = true
		l.run(ctx)
		c.tally.down()
		c.handIn(l)
	}
}

// handIn releases a lane's memory and hands its claim to the server.
func (c *client) handIn(l *lane) {
	if err := l.local.Close(); errors.Is(err, edge.ErrBusy) {
		c.tally.wrong("memory is still in use after every operation has ended")
	}
	l.claim.Bytes = l.oracle.bytes
	file := fmt.Sprintf("%s/%s.claim", c.w.job.Dir, l.claim.ID)
	if err := writeFile(file, &l.claim); err != nil {
		c.tally.wrong(err.Error())
		return
	}
	c.w.emit(Event{Claim: file})
}

func (c *client) name() string {
	c.nameMu.Lock()
	defer c.nameMu.Unlock()
	c.number++
	return fmt.Sprintf("%s-%d", c.w.job.Name, c.number)
}
