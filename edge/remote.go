package edge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// RemoteRegion is memory that the peer of a connection exported. It is an io.ReaderAt and io.WriterAt, and the target
// of Work.
type RemoteRegion struct {
	conn    *Conn
	name    string
	key     regmem.Key
	size    int64
	perm    Perm
	number  uint32        // of two of a name the greater is the newer
	older   *RemoteRegion // of the same name, not withdrawn either; guarded by Conn.mu
	revoked atomic.Bool
}

// Import returns the memory that the peer exports under name. It waits until the peer does so; an error that wraps the
// error of ctx says that the peer did not. If the peer exported several under the name, Import returns the newest. The
// end of the connection ends the wait, however many notifications are unread.
func (c *Conn) Import(ctx context.Context, name string) (*RemoteRegion, error) {
	for {
		r, changed := c.lookup(name)
		if r != nil {
			return r, nil
		}
		if err := c.usable(); err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := c.d.ended(ctx)
			if errors.Is(err, ErrDaemonSilent) {
				return nil, err
			}
			return nil, inner.NotExported(err, c.peer, name)
		case <-c.d.life.deadCh:
			return nil, c.d.Err()
		}
	}
}

// lookup returns what the peer exports under name, or a channel that is closed at the next change.
func (c *Conn) lookup(name string) (*RemoteRegion, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.adverts[name]; r != nil && !r.revoked.Load() { // else it was given up, and the peer has yet to say so
		return r, nil
	}
	return nil, c.nextChange()
}

// nextChange returns what announce closes. The caller holds mu.
func (c *Conn) nextChange() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// inner.MaxImports bounds what a peer can make us remember: a connection whose peer exports memory under more names
// ends with ErrLimit. Of one name the newest are remembered.
const ofOneName = 16

func (c *Conn) advertised(m *ipc.Message) {
	size := int64(m.Size)
	if size < 0 || int64(int(size)) != size {
		return // no int can address it
	}
	r := &RemoteRegion{conn: c, name: m.Name, key: regmem.Key(m.Key), size: size, perm: Perm(m.Perm),
		number: m.Number}
	c.mu.Lock()
	if c.adverts == nil {
		c.adverts = map[string]*RemoteRegion{}
	}
	newest := c.adverts[m.Name]
	full := newest == nil && len(c.adverts) >= inner.MaxImports
	if !full {
		c.adverts[m.Name] = newest.with(r)
	}
	c.mu.Unlock()
	if full {
		go c.d.tell(&ipc.Message{Kind: ipc.KindAbort, Conn: c.id})
		c.fail(errImports)
		return
	}
	c.announce()
}

// with returns newest, the newest of its name or nil, with r in its place among them.
func (newest *RemoteRegion) with(r *RemoteRegion) *RemoteRegion {
	at := &newest
	for *at != nil && (*at).number > r.number { // it was overtaken
		at = &(*at).older
	}
	r.older, *at = *at, r
	last := newest
	for range ofOneName - 1 {
		if last = last.older; last == nil {
			return newest
		}
	}
	last.older = nil
	return newest
}

func (c *Conn) withdrawn(key uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, newest := range c.adverts {
		for at := &newest; *at != nil; at = &(*at).older {
			r := *at
			if r.key != regmem.Key(key) {
				continue
			}
			r.revoked.Store(true)
			*at = r.older
			if c.adverts[name] = newest; newest == nil {
				delete(c.adverts, name)
			}
			return
		}
	}
}

var errImports = fmt.Errorf("%w: the peer exported more than %d names on one connection; export less at once, or on "+
	"several", ErrLimit, inner.MaxImports)

// Name returns the name under which the peer exported the memory.
func (r *RemoteRegion) Name() string { return r.name }

// Size returns the size in bytes.
func (r *RemoteRegion) Size() int64 { return r.size }

// Perm returns what is allowed.
func (r *RemoteRegion) Perm() Perm { return r.perm }

// Conn returns the connection the memory was imported on.
func (r *RemoteRegion) Conn() *Conn { return r.conn }
