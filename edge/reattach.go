package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// When the daemon goes away (it was restarted, it died, it evicted this process) everything that lived by its leave
// ends at once with ErrDaemonDown: operations, connections, exports. The Device itself stays. It looks for a daemon in
// the background, attaches to it, and offers the services of its Listeners again, so that Accept goes on. Nothing of
// the old daemon is pretended to go on: programs dial connections again, and register memory again, since only the
// daemon that made it may move it (Region.Renew keeps the bytes).
//
// Attempts are spaced by pauses that double from firstPause to longestPause, each spread by half, so that the clients
// of a restarted daemon do not come all at once. A call on the Device meanwhile causes an attempt at once and gets its
// outcome.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 2 * time.Second
	steady       = 10 * time.Second // an attachment that lasted so long was a good one: the next pause is the first
	// how long the name of a service may still be taken, by ourselves before the daemon noticed
	nameTime = 2 * time.Second
)

// supervise replaces attachments that end, until the Device is closed.
func (d *Device) supervise() {
	defer close(d.supervised)
	pause := firstPause
	for {
		a, born := d.at.Load(), time.Now()
		waiting, open := d.untilLost(a)
		if !open {
			return
		}
		a.end()
		d.tell(a.Err(), 0)
		if time.Since(born) > steady {
			pause = firstPause
		}
		if !d.reattach(&pause, waiting) {
			return
		}
	}
}

// untilLost returns when a has ended, with the calls that want another, or open false when the Device is closed.
func (d *Device) untilLost(a *attachment) (waiting []chan error, open bool) {
	look := time.NewTicker(pulseLook)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			d.checkPulse(a)
		case <-a.life.deadCh:
			return waiting, true
		case answer := <-d.wanted:
			if a.Err() == nil {
				answer <- nil // it is there already
				continue
			}
			waiting = append(waiting, answer)
		case <-d.life.Done():
			return nil, false
		}
	}
}

// reattach tries until it succeeds. It reports false when the Device is closed first.
func (d *Device) reattach(pause *time.Duration, waiting []chan error) bool {
	var said string
	for tries := 1; ; tries++ {
		if len(waiting) == 0 { // else at once
			waiting = d.pauseFor(*pause)
			*pause = min(2**pause, longestPause)
		}
		if d.life.Err() != nil {
			return false
		}
		err := d.tryAttach()
		for _, answer := range waiting {
			answer <- err
		}
		waiting = nil
		if err == nil {
			d.tell(nil, tries)
			return true
		}
		if text := err.Error(); text != said {
			said = text
			d.log().Info("edge: no daemon to attach to yet", "reason", text, "attempts", tries)
		}
	}
}

// pauseFor waits. It returns early with a call that wants a daemon, or when the Device is closed.
func (d *Device) pauseFor(pause time.Duration) []chan error {
	t := time.NewTimer(pause/2 + rand.N(pause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.life.Done():
	case answer := <-d.wanted:
		return []chan error{answer}
	}
	return nil
}

// tryAttach makes one attempt.
func (d *Device) tryAttach() error {
	ctx, cancel := context.WithTimeout(d.life, attachTime)
	defer cancel()
	ctl, err := d.reopen(ctx)
	if err != nil {
		return err
	}
	a, err := d.greet(ctx, ctl)
	if err != nil {
		return err
	}
	d.pollMu.Lock()
	if d.poller != nil {
		err = d.poller.watch(a.wakeups.bell.FD())
	}
	if err == nil {
		d.at.Store(a)
	}
	d.pollMu.Unlock()
	go a.readLoop()
	if err == nil {
		err = d.relisten(ctx, a)
	}
	if err != nil {
		a.fail(ErrDaemonDown)
		a.end()
		return err
	}
	close(a.life.ready)
	d.attached.Add(1)
	a.news.Add(1)
	d.progress()
	return nil
}

// relisten offers the services of all listeners to a new daemon. A refused service ends its Listener. An error means
// that this daemon ends or has ended, and another must be asked.
func (d *Device) relisten(ctx context.Context, a *attachment) error {
	d.mu.Lock()
	listeners := make([]*Listener, 0, len(d.listeners))
	for _, l := range d.listeners {
		listeners = append(listeners, l)
	}
	d.mu.Unlock()
	// Listen has not returned: it offers it itself, later
	listeners = slices.DeleteFunc(listeners, func(l *Listener) bool { return !l.offered.Load() })
	for _, l := range listeners {
		err := a.listen(ctx, l)
		for until := time.Now().Add(nameTime); errors.Is(err, ErrExists) && time.Now().Before(until) &&
			ctx.Err() == nil; err = a.listen(ctx, l) {
			time.Sleep(firstPause)
		}
		if a.Err() != nil {
			return a.Err()
		}
		// the service was not refused
		if ctx.Err() != nil || errors.Is(err, ErrDaemonDown) || errors.Is(err, ErrDaemonSilent) {
			return err
		}
		if err != nil {
			d.log().Warn("edge: a service could not be offered again", "service", l.service, "reason", err)
			l.fail(fmt.Errorf("edge: service %q could not be offered to the new daemon: %w", l.service, err))
			d.dropListener(l)
			// closed meanwhile, perhaps before the daemon knew of it; another Listen of the name waits for this
		} else if !d.listens(l) {
			a.tell(&ipc.Message{Kind: ipc.KindUnlisten, Service: l.service})
		}
	}
	return nil
}

// current returns the attachment to ask. If there is none, it makes one attempt to attach and returns the outcome.
func (d *Device) current(ctx context.Context) (*attachment, error) {
	a := d.at.Load()
	if a.Err() == nil || d.reopen == nil {
		return a, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := make(chan error, 1)
	select {
	case d.wanted <- answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.life.Done():
		return nil, net.ErrClosed
	}
	select {
	case err := <-answer:
		if err != nil {
			return nil, inner.Also(strings.TrimPrefix(err.Error(), "edge: "), ErrDaemonDown, err)
		}
		return d.at.Load(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.supervised:
		return nil, net.ErrClosed
	}
}

// tell logs that the daemon was lost, or with nil that another was found by so many attempts, and calls OnChange.
func (d *Device) tell(lost error, attempts int) {
	if lost != nil {
		d.log().Warn("edge: lost the daemon; everything in flight has ended, attaching again", "socket", d.cfg.Socket,
			"reason", lost)
	} else {
		d.log().Info("edge: attached again", "socket", d.cfg.Socket, "node", d.Name(), "attempts", attempts)
	}
	if d.cfg.OnChange != nil {
		d.cfg.OnChange(lost)
	}
}

func (d *Device) log() *slog.Logger {
	if d.cfg.Log == nil {
		return slog.Default()
	}
	return d.cfg.Log
}

// Renew returns memory in place of a region that lost its daemon: of the same size and content, registered with the
// present daemon. r is closed then, and its Bytes are gone; nobody may use them during the call. A region that is
// registered still is returned as it is; a space (package space) cannot be renewed. If it
// cannot be renewed Renew returns r, whose Bytes are still there, with the error.
func (r *Region) Renew(ctx context.Context) (*Region, error) {
	if r.Err() == nil {
		return r, nil
	}
	if r.heap != nil {
		n, err := r.d.dev.grantHeap(ctx, *r.heap)
		if err != nil {
			return r, err
		}
		return n, r.Close()
	}
	if r.space != nil {
		return r, invalid("Renew: a space is not copied; map another, and copy what is of use")
	}
	n, err := r.d.dev.RegisterContext(ctx, r.size)
	if err != nil {
		return r, err
	}
	if err := r.copyOut(n.bytes, 0); err != nil {
		n.Close()
		return r, err
	}
	return n, r.Close()
}

// Err returns nil while the region is registered, and ErrStale once the daemon that registered it has gone: the Bytes
// are still there, but operations and exports need Renew first.
func (r *Region) Err() error {
	if r.d.Err() != nil {
		return ErrStale
	}
	return nil
}
