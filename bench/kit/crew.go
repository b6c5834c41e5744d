package kit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Crew is processes in lab hosts that work together. What they report comes one event after another.
type Crew struct {
	members []member
	said    chan Said
	stopped chan struct{}
}

type member struct {
	name string
	*Process
}

// Said is what a member reported.
type Said struct {
	Event
	Member int  // in the order of Add
	Over   bool // it has ended, and reports nothing more
	crew   *Crew
}

// NewCrew returns a crew without members.
func NewCrew() *Crew { return &Crew{said: make(chan Said), stopped: make(chan struct{})} }

// Add makes a process a member; name stands before its errors. Its Events are the crew's from now on.
func (w *Crew) Add(name string, p *Process) {
	at := len(w.members)
	w.members = append(w.members, member{name, p})
	tell := func(s Said) {
		select {
		case w.said <- s:
		case <-w.stopped:
		}
	}
	go func() {
		for e := range p.Events {
			tell(Said{e, at, false, w})
		}
		tell(Said{Member: at, Over: true, crew: w})
	}()
}

// Process is a member, in the order of Add.
func (w *Crew) Process(i int) *Process { return w.members[i].Process }

// Err says why a member that reported an error, or that is over, failed; nil: it reported something else.
func (s *Said) Err() error {
	m := s.crew.members[s.Member]
	switch {
	case s.Error != "":
		return fmt.Errorf("%s: %s", m.name, s.Error)
	case s.Over:
		return fmt.Errorf("%s: %w", m.name, m.Failure())
	}
	return nil
}

// Hear returns what is said next, or ends by Check if ctx does first.
func (w *Crew) Hear(ctx context.Context) (s Said) {
	select {
	case s = <-w.said:
	case <-ctx.Done():
		Check(ctx.Err())
	}
	return s
}

// alike is within what time the members that fail together do.
const alike = time.Second

// Next is Hear where no member may fail. If one does it ends by Check, and the error says who failed besides.
func (w *Crew) Next(ctx context.Context) Said {
	s := w.Hear(ctx)
	err := s.Err()
	if err == nil {
		return s
	}
	within, cancel := context.WithTimeout(ctx, alike)
	defer cancel()
	for Try(func() { s = w.Hear(within) }) == nil {
		if !s.Over && s.Err() != nil {
			err = errors.Join(err, s.Err())
			break
		}
	}
	Check(err)
	return s
}

// AwaitStarted waits until the latest member says that it is ready.
func (w *Crew) AwaitStarted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for s := w.Next(ctx); !s.Started || s.Member < len(w.members)-1; {
		s = w.Next(ctx)
	}
}

// Stop ends all members, at once.
func (w *Crew) Stop() {
	close(w.stopped)
	var all sync.WaitGroup
	for _, m := range w.members {
		all.Go(m.Stop)
	}
	all.Wait()
}
