package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// sample is what the daemon says of itself at one moment.
type sample struct {
	status inspect.Status
	links  []inspect.LinkStatus
}

func (g *globals) sample() (*sample, error) {
	var s sample
	var err error
	if s.status, err = g.status(); err != nil {
		return nil, err
	}
	s.links, err = get[[]inspect.LinkStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "link"})
	return &s, err
}

// secondsSince is the time between two samples by the daemon's own clock.
func (s *sample) secondsSince(before *sample) float64 {
	return max(s.status.UptimeSeconds-before.status.UptimeSeconds, 1e-9)
}

// restartedSince reports whether s is of another run of the daemon than before.
func (s *sample) restartedSince(before *sample) bool { return s.status.Epoch != before.status.Epoch }

// only leaves one link, unless name is empty or "all", which no interface can be called.
func (s *sample) only(name string) error {
	if name == "" || name == "all" {
		return nil
	}
	var have []string
	for _, l := range s.links {
		if l.Name == name {
			s.links = []inspect.LinkStatus{l}
			return nil
		}
		have = append(have, l.Name)
	}
	return fmt.Errorf("the daemon has no link %q; name one of: %s, or all", name, strings.Join(have, ", "))
}

// linkWords are the engine's counters that it keeps for each link.
var linkWords = strings.Fields("bytes_received bytes_sent frames_received frames_sent frames_retransmitted " +
	"frames_lost frames_duplicated frames_reordered")

// linkCounts gathers what is counted of a link: by the engine, by the kernel (kernel_...), and by the daemon between
// them.
func linkCounts(l *inspect.LinkStatus) inspect.Counts {
	c := inspect.Counts{"send_discards": l.Discards}
	for _, word := range linkWords {
		c[word] = l.Counters[word]
	}
	for word, n := range l.Kernel {
		c["kernel_"+word] = n
	}
	return c
}

// rates are counters per second.
type rates map[string]float64

// perSecond returns how fast counters grew; nil if one went back, which is to say that they began anew in between.
func perSecond(now, before inspect.Counts, seconds float64) rates {
	r := rates{}
	for word, n := range now {
		if n < before[word] {
			return nil
		}
		r[word] = float64(n-before[word]) / seconds
	}
	return r
}

// checkInterval refuses pauses that are none.
func checkInterval(d time.Duration) error {
	const day = 24 * time.Hour
	if d <= 0 || d > day {
		return fmt.Errorf("--interval %v: give seconds, more than 0 and at most %.0f, or a duration such as 500ms", d,
			day.Seconds())
	}
	return nil
}

// gone says that a daemon which has answered before does not any more.
func gone(err error) error {
	if errors.Is(err, errNoDaemon) {
		return fmt.Errorf("the daemon is gone: %w", err)
	}
	return err
}
