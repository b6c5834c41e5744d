package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Lab is a running network. Its methods may be called from any goroutine.
type Lab struct {
	spec    Spec
	rates   []uint64 // bytes per second, by link
	hosts   []*Host
	middle  *space // where ports, bridges and wires are
	paths   *paths // between two routers; nil: there is one
	links   []*Link
	nursery *nursery

	closing  sync.Once
	closeErr error
}

// New builds a lab. When it returns, all interfaces are up and pass frames. The context bounds the building only; after
// an error nothing is left of it.
func New(ctx context.Context, spec Spec) (*Lab, error) {
	rates, err := spec.normal()
	if err != nil {
		return nil, err
	}
	l := &Lab{spec: spec, rates: rates, nursery: newNursery()}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context) (err error) {
	if l.middle, err = newSpace(); err != nil {
		return err
	}
	if l.spec.Medium == Routed {
		if err := forward(l.middle); err != nil {
			return err
		}
		if l.spec.Paths > 1 {
			if l.paths, err = l.layPaths(ctx); err != nil {
				return err
			}
		}
	}
	for i := range l.spec.Hosts {
		s, err := newSpace()
		if err != nil {
			return err
		}
		l.hosts = append(l.hosts, &Host{lab: l, index: i, space: s})
	}
	for i := range l.spec.Links {
		if ctx.Err() != nil {
			return fmt.Errorf("lab: %w", context.Cause(ctx))
		}
		k := newLink(l, i)
		l.links = append(l.links, k)
		if err := k.build(ctx); err != nil {
			return fmt.Errorf("lab: link %d: %w", i, err)
		}
	}
	return nil
}

// Close kills what runs in the hosts and removes everything. Calling it again returns the same.
func (l *Lab) Close() error {
	l.closing.Do(func() {
		l.nursery.close()
		for _, k := range l.links {
			l.closeErr = errors.Join(l.closeErr, k.close())
		}
		for _, h := range l.hosts {
			h.space.close()
		}
		if l.paths != nil {
			l.paths.far.close()
		}
		if l.middle != nil {
			l.middle.close()
		}
	})
	return l.closeErr
}

// Host returns host i, from 0.
func (l *Lab) Host(i int) *Host { return l.hosts[i] }

// Hosts returns how many there are.
func (l *Lab) Hosts() int { return len(l.hosts) }

// Link returns link i, from 0.
func (l *Lab) Link(i int) *Link { return l.links[i] }

// Links returns how many there are.
func (l *Lab) Links() int { return len(l.links) }

// Counters returns what each link did so far.
func (l *Lab) Counters() ([]Counters, error) {
	all := make([]Counters, len(l.links))
	for i, k := range l.links {
		var err error
		if all[i], err = k.Counters(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Describe says in one line what the lab is, for reports.
func (l *Lab) Describe() string {
	var b strings.Builder
	plural := "s"
	if len(l.links) == 1 {
		plural = ""
	}
	fmt.Fprintf(&b, "%d hosts, %d link%s of MTU %d", len(l.hosts), len(l.links), plural, l.spec.MTU)
	for i, k := range l.links {
		if i == 0 || k.medium != l.links[i-1].medium || k.rate != l.links[i-1].rate {
			fmt.Fprintf(&b, "; from edge%d: %s", i, k.medium)
			if k.rate > 0 {
				fmt.Fprintf(&b, " of %s", formatRate(k.rate))
			}
		}
	}
	b.WriteString(l.spec.Faults.Describe())
	if l.spec.Faults.Any() {
		fmt.Fprintf(&b, ", seed %d", l.spec.Seed)
	}
	if Unprivileged() {
		b.WriteString("; in a user namespace")
	}
	return b.String()
}
