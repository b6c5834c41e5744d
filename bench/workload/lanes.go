package workload

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
	"multiedge/edge"
)

// A series has one connection that carries control messages, and as many further ones as its measurements ask for. All
// of them reach the same memory: each end registers its regions once and exports them on every connection. A lane is
// one connection with what it reaches.
type lane struct {
	conn   *edge.Conn
	source *edge.RemoteRegion // the peer's; nil when no measurement needed it yet
	target *edge.RemoteRegion
}

// laneWorkers is how many connections are dialled, accepted, or asked for their peer's memory at a time.
const laneWorkers = 16

// perLane is what a further connection adds to the time that setting up may take.
const perLane = 20 * time.Millisecond

// setupContext bounds setting up a series of n connections.
func setupContext(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, setupTime+time.Duration(n)*perLane)
}

// exportData lets the peer of conn reach the data regions, except for their guard pages.
func exportData(conn *edge.Conn, mem *regions) {
	written := edge.RemoteWrite
	if !mem.granted { // grants have no atomics
		written |= edge.RemoteAtomic
	}
	for _, e := range []struct {
		region *edge.Region
		name   string
		perm   edge.Perm
	}{{mem.source, sourceName, edge.RemoteRead}, {mem.target, targetName, written}} {
		if e.region != nil {
			_, err := e.region.Export(conn, e.name, e.perm, pattern.Guard, mem.size-2*pattern.Guard)
			kit.Checkf(err, "exporting %s", e.name)
		}
	}
}

// reach imports what it does not have yet of the peer's data regions.
func (l *lane) reach(ctx context.Context, source, target bool) {
	if source && l.source == nil {
		l.source = importOf(ctx, l.conn, sourceName)
	}
	if target && l.target == nil {
		l.target = importOf(ctx, l.conn, targetName)
	}
}

func importOf(ctx context.Context, conn *edge.Conn, name string) *edge.RemoteRegion {
	r, err := conn.Import(ctx, name)
	kit.Checkf(err, "importing the peer's %s region", name)
	return r
}

// join opens the further connections of a series at the client, n in all. If it fails, closing the device ends them.
func (c *Client) join(ctx context.Context, o DialOptions, p Params, n int) {
	p.Joins = true
	data := p.encode()
	lanes := make([]lane, n-1)
	kit.Each(ctx, n-1, laneWorkers, func(ctx context.Context, i int) {
		conn, err := c.dev.Dial(ctx, o.Peer, cmp.Or(o.service, Service), edge.Data(data))
		kit.Checkf(err, "connection %d of %d", i+2, n)
		lanes[i].conn = conn
		exportData(conn, c.mem)
	})
	c.side.lanes = append(c.side.lanes, lanes...)
}

// closeLanes ends the further connections of a side in good order; what goes wrong no longer matters.
func (s *side) closeLanes() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = kit.Try(func() {
		kit.Each(ctx, len(s.lanes)-1, laneWorkers,
			func(ctx context.Context, i int) { _ = s.lanes[i+1].conn.CloseContext(ctx) })
	})
}

// lobby is where further connections of the server's series arrive.
type lobby struct {
	mu     sync.Mutex
	series map[lobbyKey]chan *edge.Conn
}

type lobbyKey struct {
	peer   string
	series uint64
}

// open expects n connections for a series and returns where they will come.
func (l *lobby) open(k lobbyKey, n int) (<-chan *edge.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.series == nil {
		l.series = map[lobbyKey]chan *edge.Conn{}
	}
	if l.series[k] != nil {
		return nil, errors.New("a series of that number is open already")
	}
	ch := make(chan *edge.Conn, n)
	l.series[k] = ch
	return ch, nil
}

// close ends the wait for connections of a series and gives back those nobody took.
func (l *lobby) close(k lobbyKey) {
	l.mu.Lock()
	ch := l.series[k]
	delete(l.series, k)
	l.mu.Unlock()
	for len(ch) > 0 {
		_ = (<-ch).Abort() // its peer has ended as well
	}
}

// enter passes an accepted connection on to its series.
func (l *lobby) enter(k lobbyKey, conn *edge.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := l.series[k]
	if ch == nil || len(ch) == cap(ch) {
		return errors.New("the connection belongs to no series of this server")
	}
	ch <- conn
	return nil
}

// join takes the n further connections of a series at the server.
func (s *side) join(ctx context.Context, from <-chan *edge.Conn, n int) {
	for range n {
		select {
		case conn := <-from:
			s.lanes = append(s.lanes, lane{conn: conn})
			exportData(conn, s.mem)
		case <-ctx.Done():
			kit.Fail("%d of %d connections came: %w", len(s.lanes), n+1, ctx.Err())
		}
	}
}
