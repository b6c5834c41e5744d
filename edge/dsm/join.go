package dsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"multiedge/edge"
)

// Exports of each rank to each other, by area.
var exports = [2]struct {
	name string
	perm edge.Perm
}{
	control: {"dsm control", edge.RemoteRead | edge.RemoteWrite | edge.RemoteAtomic},
	data:    {"dsm data", edge.RemoteRead | edge.RemoteWrite},
}

// service is where a rank waits for those of greater numbers.
func service(c *Config, rank int) string { return fmt.Sprintf("dsm/%s/%d", c.Name, rank) }

// greeting is the private data of a dial: what must be the same at both ends, the rank that dials, and its node.
const greeting = "edge-dsm 2 %d ranks %d bytes %d locks %d words from %d at %s"

// join finds the other ranks. All dial rank 0 and learn from it on which nodes the others are; then each dials those of
// smaller numbers (DSM clause 1).
func join(ctx context.Context, c *Config) (_ *links, err error) {
	l := newLinks(ctx, c)
	defer func() {
		if err != nil {
			l.leave(err)
		}
	}()
	ctx, cancel := context.WithTimeout(l.ctx, patience(c)) // it ends, too, when a rank is lost
	defer cancel()
	if l.dev == nil {
		if l.dev, err = edge.Open(ctx, edge.Config{Spin: Spin}); err != nil {
			return nil, err
		}
		l.mine = true
	}
	if err := l.register(ctx, c); err != nil {
		return nil, err
	}
	at, err := l.dev.Listen(ctx, service(c, c.Rank))
	if err != nil {
		return nil, fmt.Errorf("dsm: rank %d of run %q: %w", c.Rank, c.Name, err)
	}
	defer at.Close()
	if err := l.meetAll(ctx, c, at); err != nil {
		return nil, l.missing(c, ctx, err)
	}
	return l, nil
}

// newLinks returns the links of a rank that has none yet.
func newLinks(ctx context.Context, c *Config) *links {
	l := &links{rank: c.Rank, dev: c.Device, lay: newLayout(c), conns: make([]*edge.Conn, c.Ranks),
		there: make([][2]*edge.RemoteRegion, c.Ranks)}
	l.ctx, l.end = context.WithCancelCause(ctx)
	return l
}

// patience is how long a rank tries to join. Rank 0 alone sees which ranks do not come, and says so. It may start Join
// later than a rank that waits for it, and then waits for Join itself.
func patience(c *Config) time.Duration {
	if c.Rank == 0 {
		return c.Join
	}
	return 2*c.Join + farewell
}

// register makes the regions and the queue.
func (l *links) register(ctx context.Context, c *Config) (err error) {
	for i, size := range [2]int{control: l.lay.size, data: c.Size} {
		if l.areas[i], err = l.dev.RegisterContext(ctx, size); err != nil {
			return fmt.Errorf("dsm: %d bytes of memory: %w", size, err)
		}
	}
	l.queue, err = l.dev.NewCompletionQueue(512 * c.Ranks)
	return err
}

// meetAll connects to all ranks.
func (l *links) meetAll(ctx context.Context, c *Config, at *edge.Listener) error {
	nodes := make([]string, c.Ranks)
	if c.Rank > 0 {
		if err := l.dialRoot(ctx, c); err != nil {
			return err
		}
		if err := l.awaitRoster(ctx, nodes); err != nil {
			return err
		}
	}
	for rank := 1; rank < c.Rank; rank++ {
		if err := l.dial(ctx, c, rank, nodes[rank]); err != nil {
			return err
		}
	}
	nodes[c.Rank] = l.dev.Node()
	for range c.Ranks - c.Rank - 1 {
		if err := l.accept(ctx, c, at, nodes); err != nil {
			return err
		}
	}
	if c.Rank == 0 {
		return l.sendRoster(ctx, nodes)
	}
	return nil
}

// dialPause is between attempts to reach a rank that has not started yet.
const dialPause = 20 * time.Millisecond

// dialRoot connects to rank 0, for which a rank waits no longer than for all others.
func (l *links) dialRoot(ctx context.Context, c *Config) error {
	within, cancel := context.WithTimeout(ctx, c.Join)
	defer cancel()
	err := l.dial(within, c, 0, c.Root)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return didNotCome(c, []int{0}, err)
	}
	return err
}

// dial connects to a rank of smaller number.
func (l *links) dial(ctx context.Context, c *Config, rank int, node string) error {
	hello := fmt.Appendf(nil, greeting, c.Ranks, c.Size, c.Locks, c.Log, c.Rank, l.dev.Node())
	for {
		conn, err := l.dev.Dial(ctx, node, service(c, rank), edge.Data(hello))
		switch {
		case err == nil:
			return l.exchange(ctx, rank, conn)
		case errors.Is(err, edge.ErrNoService), errors.Is(err, edge.ErrPeerUnknown), errors.Is(err, edge.ErrPeerDown):
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(dialPause):
		}
	}
}

// accept takes the connection of a rank of greater number, and refuses whoever is none.
func (l *links) accept(ctx context.Context, c *Config, at *edge.Listener, nodes []string) error {
	for {
		r, err := at.Next(ctx)
		if err != nil {
			return err
		}
		var ranks, size, locks, log, rank int
		var node string
		_, err = fmt.Sscanf(string(r.Data()), greeting, &ranks, &size, &locks, &log, &rank, &node)
		switch {
		case err != nil || len(node) > nodeText:
			r.Refuse("this is a rank of a dsm run, which speaks version 2 of its protocol")
		case ranks != c.Ranks || size != c.Size || locks != c.Locks || log != c.Log:
			r.Refuse(fmt.Sprintf("rank %d has %d ranks, %d bytes, %d locks and a log of %d words; all must have "+
				"the same", c.Rank, c.Ranks, c.Size, c.Locks, c.Log))
		case rank <= c.Rank || rank >= c.Ranks || l.conns[rank] != nil:
			r.Refuse(fmt.Sprintf("there is a rank %d already, or none of that number is expected", rank))
		default:
			conn, err := r.Accept(ctx, nil)
			if err != nil {
				continue
			}
			nodes[rank] = node
			return l.exchange(ctx, rank, conn)
		}
	}
}

// exchange exports this rank's memory on a connection, and imports the other's.
func (l *links) exchange(ctx context.Context, rank int, conn *edge.Conn) error {
	l.conns[rank] = conn
	if err := l.queue.Notify(conn); err != nil {
		return err
	}
	for i, e := range exports {
		if _, err := l.areas[i].Export(conn, e.name, e.perm, 0, l.areas[i].Len()); err != nil {
			return err
		}
	}
	for i, e := range exports {
		r, err := conn.Import(ctx, e.name)
		if end := conn.Err(); err != nil && end != nil {
			return l.cause(rank, end)
		}
		if err != nil {
			return err
		}
		if r.Size() != int64(l.areas[i].Len()) {
			return fmt.Errorf("%w: dsm: rank %d exports %d bytes as %q", edge.ErrVersion, rank, r.Size(), e.name)
		}
		l.there[rank][i] = r
	}
	go l.watch(rank) // while others still join, too
	return nil
}

// sendRoster tells the others on which nodes all ranks are.
func (l *links) sendRoster(ctx context.Context, nodes []string) error {
	b := l.areas[control].Bytes()[l.lay.roster:]
	for rank, node := range nodes {
		copy(b[rank*nodeText:(rank+1)*nodeText], node)
	}
	var ops []edge.Op
	for rank := 1; rank < len(nodes); rank++ {
		op, err := l.conns[rank].Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: noteRoster,
			Local: l.areas[control], LocalOff: l.lay.roster, Len: len(nodes) * nodeText, Remote: l.there[rank][control],
			RemoteOff: l.lay.roster})
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	return edge.WaitAll(ctx, ops)
}

// awaitRoster waits for what sendRoster sends. Rank 0 is the only one connected.
func (l *links) awaitRoster(ctx context.Context, nodes []string) error {
	if _, err := l.queue.Wait(ctx, l.note[:]); err != nil {
		return fmt.Errorf("rank 0 did not say where the other ranks are: %w", err)
	}
	if l.note[0].Imm&^noteNumber == noteEnding {
		return &told{lastWords(l.areas[control].Bytes(), l.lay.ending, 0)}
	}
	if l.note[0].Imm != noteRoster {
		return fmt.Errorf("%w: dsm: rank 0 sent notification %#x first", edge.ErrVersion, l.note[0].Imm)
	}
	b := l.areas[control].Bytes()[l.lay.roster:]
	for rank := range nodes {
		nodes[rank] = string(bytes.TrimRight(b[rank*nodeText:(rank+1)*nodeText], "\x00"))
	}
	return nil
}

// missing says why not all ranks are connected. What a rank that failed said about it is the best cause, then which one
// was seen to end, then which ones did not come in time.
func (l *links) missing(c *Config, ctx context.Context, err error) error {
	if errors.Is(err, ErrRank) {
		return err
	}
	if words := protect(func() error { l.heedEnding(); return nil }); words != nil {
		return words
	}
	if cause := context.Cause(l.ctx); errors.Is(cause, ErrRank) {
		return cause
	}
	if c.Rank > 0 || ctx.Err() == nil || l.ctx.Err() != nil {
		return fmt.Errorf("dsm: rank %d of run %q: %w", c.Rank, c.Name, err)
	}
	var ranks []int
	for rank, conn := range l.conns {
		if conn == nil && rank != c.Rank {
			ranks = append(ranks, rank)
		}
	}
	return fmt.Errorf("dsm: rank 0 of run %q: %w", c.Name, didNotCome(c, ranks, err))
}

// didNotCome is the error of a rank that waited in vain.
func didNotCome(c *Config, ranks []int, err error) error {
	return fmt.Errorf("ranks %v did not come within %v; start them with the same %s or Config: %w", ranks, c.Join,
		Variable, err)
}
