package edge

import (
	"context"
	"sync"
)

// Shared is memory that a Listener exports to every connection it accepts, whatever happens to the daemon: after a
// restart the memory is registered anew, with its bytes, before the next connection is accepted.
type Shared struct {
	name string
	perm Perm

	mu     sync.Mutex
	region *Region
}

// Share exports all of r under name to every connection that l accepts from now on, before Accept returns it. It takes
// r over: use Region to reach the memory, since its place in this process changes when it is registered anew.
//
//	l, _ := dev.Listen(ctx, "store")
//	r, _ := dev.Register(1 << 20)
//	table, _ := l.Share(r, "table", edge.RemoteRead|edge.RemoteWrite)
//	for {
//		c, _ := l.Accept(ctx) // the peer can import "table", today and after a restart of edged
//		...
//	}
func (l *Listener) Share(r *Region, name string, perm Perm) (*Shared, error) {
	if err := checkExport(r, name, perm, 0, r.size); err != nil {
		return nil, err
	}
	if r.d.dev != l.d {
		return nil, invalid("Share: the region must be of the listener's Device")
	}
	s := &Shared{name: name, perm: perm, region: r}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.shared {
		if other.name == name {
			return nil, ErrExists
		}
	}
	l.shared = append(l.shared, s)
	return s, nil
}

// Region returns the memory as it is registered now. After a restart of the daemon it is another Region, with the same
// bytes. The previous one is closed then, so nobody may use its Bytes during the call.
func (s *Shared) Region(ctx context.Context) (*Region, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.region.Renew(ctx)
	if r != nil {
		s.region = r
	}
	return s.region, err
}

// share exports what l shares to a connection that was accepted, or ends it.
func (l *Listener) share(ctx context.Context, c *Conn) error {
	l.mu.Lock()
	shared := l.shared[:len(l.shared):len(l.shared)]
	l.mu.Unlock()
	for _, s := range shared {
		r, err := s.Region(ctx)
		if err == nil {
			_, err = r.export(ctx, c, s.name, s.perm, 0, r.size)
		}
		if err != nil {
			c.Abort()
			return err
		}
	}
	return nil
}
