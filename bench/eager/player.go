package eager

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/compose"
	"multiedge/internal/mono"
)

const (
	service = "edgebench-eager"
	buffers = 4         // posted by each end
	line    = 64        // bytes written at once
	spread  = 2 * 65536 // bytes of registered memory for pieces
)

// player is one end of a game of ping-pong.
type player struct {
	conn  *edge.Conn
	queue *edge.CompletionQueue
	mem   *edge.Region // the message, pieces with gaps, and behind spread the buffers
	own   []byte       // where copied messages are composed
	work  edge.Work
	parts [edge.MaxPieces]edge.Piece
	last  edge.Op
	done  [1]edge.Completion
}

// game is how the messages of some rounds are sent.
type game struct {
	Bytes, Compose, Marks int
	Way                   int
}

// leastMark is how many bytes are marked at least: fewer are not worth a frame.
const leastMark = 512

// markStep is after how many bytes a message is marked.
func markStep(bytes, marks int) int { return max(leastMark, (bytes/marks+line-1)/line*line) }

// turn is what a turn came to.
type turn struct{ user, copied, post time.Duration }

func newPlayer(ctx context.Context, d *edge.Device, c *edge.Conn, most int) *player {
	p := &player{conn: c, own: make([]byte, most)}
	p.queue = kit.Get(d.NewCompletionQueue(2 * buffers))
	p.mem = kit.Get(d.Register(spread + buffers*most))
	for i := range uint64(buffers) {
		p.post(ctx, i, most)
	}
	return p
}

func (p *player) post(ctx context.Context, i uint64, most int) {
	kit.Get(p.conn.Post(ctx, &edge.Work{Kind: edge.Receive, Local: p.mem, LocalOff: spread + int(i)*most, Len: most,
		Queue: p.queue, Context: i}))
}

// receive takes the peer's message number n, which must be as it was composed.
func (p *player) receive(ctx context.Context, n uint32, bytes int) {
	for kit.Get(p.queue.Wait(ctx, p.done[:])) == 0 {
	}
	d := &p.done[0]
	kit.Check(d.Err)
	most := len(p.own)
	b := p.mem.Bytes()[spread+int(d.Context)*most:][:d.Len]
	for at := 0; at < len(b); at += line {
		if binary.LittleEndian.Uint32(b[at:]) != n {
			kit.Fail("message %d has the bytes of message %d at %d", n, binary.LittleEndian.Uint32(b[at:]), at)
		}
	}
	if d.Len != bytes {
		kit.Fail("message %d has %d bytes, not %d", n, d.Len, bytes)
	}
	p.post(ctx, d.Context, most)
}

// send composes message number n and sends it.
func (p *player) send(ctx context.Context, g *game, n uint32) (t turn) {
	kit.Check(p.last.Wait(ctx)) // it has arrived, but its acknowledgement may have not
	start := mono.Now()
	var m compose.Message
	var err error
	to, step := p.mem.Bytes()[:g.Bytes], 0
	switch Ways[g.Way] {
	case "eager":
		p.work = edge.Work{Kind: edge.Send, Local: p.mem, Len: g.Bytes}
		m = kit.Get(compose.Begin(p.conn, &p.work))
		step = markStep(g.Bytes, g.Marks)
	case "copied":
		to = p.own[:g.Bytes]
	}
	p.compose(g, start, n, to, m, step)
	composed := mono.Now()
	copied := composed
	switch Ways[g.Way] {
	case "eager":
		p.last, err = m.Commit(g.Bytes, 0, 0)
	case "gathered":
		p.last, err = p.conn.Post(ctx, &p.work)
	case "copied":
		copy(p.mem.Bytes(), to)
		copied = mono.Now()
		p.work = edge.Work{Kind: edge.Send, Local: p.mem, Len: g.Bytes}
		p.last, err = p.conn.Post(ctx, &p.work)
	}
	kit.Check(err)
	return turn{composed.Sub(start), copied.Sub(composed), mono.Now().Sub(copied)}
}

// compose writes a message, line by line, each when it is due, and marks what is written every step bytes.
func (p *player) compose(g *game, start mono.Time, n uint32, to []byte, m compose.Message, step int) {
	piece, gap := len(to), 0
	if Ways[g.Way] == "gathered" {
		pieces := min(edge.MaxPieces, len(to)/line)
		piece = (len(to)/pieces + line - 1) / line * line
		gap = line
		p.work = edge.Work{Kind: edge.Send, Pieces: p.parts[:0]}
		for at := 0; at < len(to); at += piece {
			p.work.Pieces = append(p.work.Pieces, edge.Piece{Region: p.mem, Off: at + at/piece*gap,
				Len: min(piece, len(to)-at)})
		}
		to = p.mem.Bytes()
	}
	marked := 0
	for at := 0; at < g.Bytes; at += line {
		b := to[at+at/piece*gap:][:min(line, g.Bytes-at)]
		for i := 0; i+4 <= len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], n)
		}
		end := at + len(b)
		for due := start.Add(time.Duration(g.Compose * end / 1024)); mono.Now() < due; {
		}
		if step > 0 && end-marked >= step && end < g.Bytes { // what is left goes with the commit
			kit.Check(mark(m, marked, end-marked))
			marked = end
		}
	}
}

func mark(m compose.Message, at, n int) error {
	err := m.Wrote(at, n)
	for errors.Is(err, edge.ErrAgain) {
		err = m.Wrote(at, n)
	}
	return err
}

func (p *player) close() {
	err := p.conn.Close()
	kit.Check(errors.Join(err, p.mem.Close()))
}
