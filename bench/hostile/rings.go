package hostile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/internal/ipc"
)

// cramLook is how often a client whose rings are full looks for room.
const cramLook = time.Millisecond

// cram fills both rings and takes no completion: the completion ring has no room, and submissions wait for it.
func cram(c *client, r *rand.Rand) (uint64, error) {
	room, err := c.SQ.Room()
	if err != nil {
		return 0, err
	}
	c.Rings.SetClientAsleep(true)
	if room == 0 {
		time.Sleep(cramLook) // full rings are what other users are measured beside
		return 0, nil
	}
	for range room {
		c.SQ.Put(&ipc.SQE{Op: ipc.OpWrite, InlineLen: 8, Conn: c.link, Key: c.key, Token: r.Uint64()})
	}
	c.Publish()
	return uint64(room), nil
}

// malformed are entries of atomics, pieces, redirections, messages, composed ones and bytes that no correct client
// writes, one after another on a ring (A6.13 to A6.19, A7.17). The last of each is what a daemon evicts for; those
// before it are in order.
func malformed(c *client) [][]ipc.SQE {
	atomic := func(f ipc.AtomicFunc, size int, compare uint64, change func(e *ipc.SQE)) []ipc.SQE {
		e := ipc.SQE{Conn: c.link, Key: c.key}
		e.SetAtomic(f, size, 1, compare)
		if change != nil {
			change(&e)
		}
		return []ipc.SQE{e}
	}
	pieces := func(n uint8, conn uint32) ipc.SQE {
		e := ipc.SQE{Op: ipc.OpPieces, InlineLen: n, Conn: conn}
		for i := range e.Pieces[:n] {
			e.Pieces[i] = ipc.Piece{Region: c.region, Off: uint64(i) * 64, Len: 64}
		}
		return e
	}
	three := pieces(ipc.PiecesPerEntry, c.link)
	write := ipc.SQE{Op: ipc.OpWrite, Conn: c.link, Key: c.key, Region: c.region, Len: 64}
	elsewhere, inline, wraps := write, write, three
	elsewhere.Conn++
	inline.InlineLen = 8
	wraps.Pieces[1].Off = 1<<64 - 8
	many := ipc.SQE{Op: ipc.OpBytes, InlineLen: ipc.BytesPerEntry, Conn: c.link}
	strange, none := many, many
	strange.Conn++
	none.InlineLen = 0
	add := atomic(ipc.AtomicAdd, 8, 0, nil)
	into := ipc.SQE{Op: ipc.OpRedirect, Conn: c.link, Key: c.key, Region: c.region, Len: 64}
	flagged, nothing, beyond := into, into, into
	flagged.Flags, nothing.Len, beyond.LocalOff = ipc.FlagNotify, 0, 1<<64-8
	compose := ipc.SQE{Op: ipc.OpCompose, Conn: c.link, Key: c.key, Region: c.region, Len: 64, Token: 1}
	named, early, far := compose, compose, ipc.SQE{Op: ipc.OpWrote, Conn: c.link, Token: 1, LocalOff: 8, Len: 1<<64 - 8}
	named.Imm, early.Flags = 1, ipc.FlagNotify
	return append(malformedMessages(c, three), [][]ipc.SQE{
		atomic(0, 8, 0, nil), atomic(ipc.AtomicMaxSigned+1, 8, 0, nil), atomic(ipc.AtomicAdd, 3, 0, nil),
		atomic(ipc.AtomicAdd, 255, 0, nil), atomic(ipc.AtomicAdd, 8, 1, nil),
		atomic(ipc.AtomicAdd, 8, 0, func(e *ipc.SQE) { e.InlineLen = 16 }),
		atomic(ipc.AtomicAdd, 8, 0, func(e *ipc.SQE) { e.Flags = ipc.FlagLocal }),
		atomic(ipc.AtomicAdd, 8, 0, func(e *ipc.SQE) { e.Inline[5] = 1 }),
		{pieces(0, c.link)}, {wraps},
		{three, three, three, three, three, three}, // 18, and the operation's own
		{three, elsewhere}, {three, pieces(1, c.link+1)}, {three, inline}, {three, add[0]}, {three, into},
		{three, {Op: ipc.OpCredit, Conn: c.link, Imm: 1}},
		{none}, {many, elsewhere}, {many, strange}, {many, write}, {many, three}, {three, many}, {many, add[0]},
		slices.Repeat([]ipc.SQE{many}, ipc.BytesEntries), {many, {Op: ipc.OpCredit, Conn: c.link, Imm: 1}},
		{flagged}, {nothing}, {beyond}, {{Op: ipc.OpEndRedirect, Conn: c.link, Token: 1, Len: 1}},
		{{Op: ipc.OpAim, Conn: c.link, Imm: ipc.Words + 1}}, {three, {Op: ipc.OpAim, Conn: c.link, Imm: 1}},
		{named}, {early}, {three, compose}, {compose, far},
		{compose, {Op: ipc.OpCommit, Flags: ipc.FlagLocal, Conn: c.link, Token: 1, Len: 64}},
		{compose, {Op: ipc.OpDiscard, Conn: c.link, Token: 1, Len: 64}},
	}...)
}

// malformedMessages are those of sends and receives.
func malformedMessages(c *client, pieces ipc.SQE) (out [][]ipc.SQE) {
	good := ipc.SQE{Op: ipc.OpReceive, Conn: c.link, Region: c.region, Len: 64}
	for _, spoil := range []func(e *ipc.SQE){
		func(e *ipc.SQE) { e.Conn = 0 },
		func(e *ipc.SQE) { e.Key = 1 },
		func(e *ipc.SQE) { e.Conn, e.Key = 0, 1<<32 },
		func(e *ipc.SQE) { e.Flags = ipc.FlagNotify },
		func(e *ipc.SQE) { e.Imm = 1 },
		func(e *ipc.SQE) { e.RemoteOff = 1 },
		func(e *ipc.SQE) { e.InlineLen = 8 },
		func(e *ipc.SQE) { e.LocalOff = 1<<64 - 8 },
		func(e *ipc.SQE) { e.Op, e.Key = ipc.OpSend, 1 },
		func(e *ipc.SQE) { e.Op, e.Flags = ipc.OpSend, ipc.FlagLocal },
		func(e *ipc.SQE) { e.Op, e.Flags = ipc.OpSend, 1<<4 },
		func(e *ipc.SQE) { e.Op, e.InlineLen = ipc.OpSend, ipc.MaxInline+1 },
		func(e *ipc.SQE) { e.Op, e.LocalOff = ipc.OpSend, 1<<64-8 },
	} {
		e := good
		spoil(&e)
		out = append(out, []ipc.SQE{e})
	}
	queue := good
	queue.Conn, queue.Key = 0, 1
	return append(out, []ipc.SQE{pieces, queue})
}

// borneAfter is when a daemon that has not evicted a client for an entry has borne it.
const borneAfter = 2 * time.Second

// verbs posts one malformed entry and waits for the daemon's answer.
func verbs(c *client, _ *rand.Rand) (uint64, error) {
	all := malformed(c)
	i := int(c.turn % uint64(len(all)))
	for k := range all[i] {
		c.SQ.Put(&all[i][k])
	}
	c.Publish()
	select {
	case <-c.gone:
	case <-time.After(borneAfter):
		c.did.Borne = append(c.did.Borne, fmt.Sprintf("malformed entry %d, operation %d", i, all[i][len(all[i])-1].Op))
	}
	return 1, nil
}

// clog fills what it may have in flight with sends that find no buffer and buffers that no message comes for. Then it
// makes receive queues until it is refused, gives some back, and tries those of others.
func clog(c *client, r *rand.Rand) (uint64, error) {
	if !c.clogged {
		c.clogged = true
		room, err := c.SQ.Room()
		if err != nil {
			return 0, err
		}
		for i := range room {
			e := ipc.SQE{Op: ipc.OpReceive, Conn: c.link, Region: c.region, Len: 64, Token: uint64(i)}
			if i%2 == 0 {
				e.Op = ipc.OpSend
			}
			c.SQ.Put(&e)
		}
		c.Publish()
		return uint64(room), nil
	}
	if r.IntN(8) == 0 {
		return c.others(r)
	}
	a, err := c.demand(&ipc.Message{Kind: ipc.KindQueue})
	if err == nil {
		c.queues = append(c.queues, a.m.Queue)
		return 1, nil
	}
	return 1, c.refused(err, &c.queues, func(n uint32) *ipc.Message {
		return &ipc.Message{Kind: ipc.KindUnqueue, Queue: n}
	})
}

// others tries queues that are not the client's, and a connection that is not.
func (c *client) others(r *rand.Rand) (uint64, error) {
	other := 1 + r.Uint32N(32)
	if n := len(c.queues); n > 0 {
		other += c.queues[n-1] // as likely as not another client's
	}
	for slices.Contains(c.queues, other) {
		other++
	}
	for _, m := range []*ipc.Message{{Kind: ipc.KindJoin, Conn: c.link, Queue: other},
		{Kind: ipc.KindUnqueue, Queue: other}, {Kind: ipc.KindJoin, Conn: c.link ^ 1<<31, Queue: 1}} {
		if _, err := c.demand(m); err == nil {
			c.did.Borne = append(c.did.Borne, fmt.Sprintf("%s of queue %d, connection %d", m.Kind, m.Queue, m.Conn))
		} else if _, refused := err.(*ipc.Error); !refused {
			return 0, err
		}
	}
	return 3, nil
}
