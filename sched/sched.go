// Package sched chooses the link on which the next frame leaves (paper section 2.5.2). Pure code: no clock, no locks,
// no allocation after New.
//
// srr, wsrr and wd are the paper's three. They know nothing of windows: the link they choose is the link, and while it
// has no room the frame waits. That is what makes srr run at the pace of the slowest link (figure 3.5). adaptive is
// ours: it needs no weights to be configured, and no link without room holds a frame up.
//
//	link, ok := s.Pick(live, room)     ok false: hold the frame, ask again when room changes; nothing has changed
//	... send ...
//	s.Sent(link, bytes)
//	s.Done(link, bytes)                when acknowledged or judged lost
package sched

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// MaxLinks is the number of links a scheduler serves, as in the paper: one bit each in a word.
const MaxLinks = 64

// Scheduler chooses links. Links are numbered 0 to MaxLinks-1. It is not safe for concurrent use.
type Scheduler interface {
	// Pick names the link for the next frame. live: bit i set if link i is usable at all; others are skipped. room: bit
	// i set if link i can take a frame now. ok is false if the frame must wait, because no link is live or the chosen
	// one has no room. Pick changes nothing.
	Pick(live, room uint64) (link int, ok bool)
	// Sent records that a frame of so many bytes left on the link Pick named.
	Sent(link, bytes int)
	// Done records that bytes given to Sent left the link: acknowledged, or lost.
	Done(link, bytes int)
	// SetWeight sets the link's speed relative to the others, in any unit: static for wsrr and wd, the measured window
	// for adaptive. Not a positive number: the link has no weight (any more) and counts as the slowest.
	SetWeight(link int, w float64)
}

// Measured is a Scheduler whose weights are the paths' windows, as they change; those of others are configured.
type Measured interface {
	Scheduler
	Measured()
}

// constructor makes the schedulers of a name.
type constructor struct {
	name string
	make func() Scheduler
}

var constructors = []constructor{
	{"srr", func() Scheduler { return &srr{} }},
	{"wsrr", func() Scheduler { return &wsrr{} }},
	{"wd", func() Scheduler { return &wd{} }},
	{"adaptive", func() Scheduler { return &adaptive{} }},
}

// Register adds a scheduler, before anything asks for it by name: in an init function of the file that has it.
func Register(name string, make func() Scheduler) {
	constructors = append(constructors, constructor{name, make})
}

// New returns the scheduler of that name with no weights set.
func New(name string) (Scheduler, error) {
	for _, c := range constructors {
		if c.name == name {
			return c.make(), nil
		}
	}
	return nil, fmt.Errorf("sched: unknown scheduler %q; choose one of %s", name, strings.Join(Names(), ", "))
}

// Names lists the schedulers.
func Names() []string {
	names := make([]string, len(constructors))
	for i, c := range constructors {
		names[i] = c.name
	}
	return names
}

// after returns the first link of set at or after cursor, going round; set must not be empty.
func after(set uint64, cursor int) int {
	return (bits.TrailingZeros64(bits.RotateLeft64(set, -cursor)) + cursor) % MaxLinks
}

func following(link int) int { return (link + 1) % MaxLinks }

func has(set uint64, link int) bool { return set>>uint(link)&1 != 0 }

// valid reports whether w is a weight: a positive number.
func valid(w float64) bool { return w > 0 && !math.IsInf(w, 1) && !math.IsInf(1/w, 1) }
