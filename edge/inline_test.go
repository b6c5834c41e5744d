package edge

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"multiedge/internal/ipc"
)

// Writes and sends carry up to MaxInline bytes by value: the program may change its own at once, and many may be under
// way, more than the ring holds at a time.
func TestInline(t *testing.T) {
	p := newMessagePair(t, Config{QueueDepth: 64})
	ctx := context.Background()
	_, err := p.mem[1].Export(p.conn[1], "out", RemoteWrite, 0, 1<<16)
	must(t, err)
	remote, err := p.conn[0].Import(ctx, "out")
	must(t, err)
	sizes := []int{1, ipc.MaxInline, ipc.MaxInline + 1, 80, 81, 500, MaxInline}
	var text [MaxInline]byte
	say := func(n, round int) []byte {
		for i := range text[:n] {
			text[i] = byte(n + 31*i + round)
		}
		return text[:n]
	}
	var ops []Op
	for round, flags := range []Flags{0, LocalDone} {
		for i, n := range sizes {
			op, err := p.conn[0].Post(ctx, &Work{Kind: Write, Flags: flags, Inline: say(n, round), Remote: remote,
				RemoteOff: i * MaxInline})
			must(t, err)
			ops = append(ops, op)
			clear(text[:])
		}
		op, err := p.conn[0].Post(ctx, &Work{Kind: Write, Flags: BackwardFence, Inline: []byte{1}, Remote: remote,
			RemoteOff: 1<<16 - 1})
		must(t, err)
		must(t, WaitAll(ctx, append(ops, op)))
		for i, n := range sizes {
			if !bytes.Equal(p.mem[1].Bytes()[i*MaxInline:][:n], say(n, round)) {
				t.Errorf("flags %d: a write of %d bytes has others", flags, n)
			}
		}
	}
	for i, n := range sizes {
		p.receive(t, 1, i*MaxInline, MaxInline, uint64(i))
		_, err := p.conn[0].Post(ctx, &Work{Kind: Send, Inline: say(n, 2), Flags: Notify, Imm: uint32(n)})
		must(t, err)
		clear(text[:])
	}
	for i, c := range p.take(t, 1, len(sizes)) {
		n := sizes[i]
		if c.Err != nil || c.Len != n || c.Imm != uint32(n) ||
			!bytes.Equal(p.mem[1].Bytes()[i*MaxInline:][:n], say(n, 2)) {
			t.Errorf("a message of %d bytes: %+v, or other bytes", n, c)
		}
	}
	_, err = p.conn[0].Post(ctx, &Work{Kind: Write, Inline: make([]byte, MaxInline+1), Remote: remote})
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("more than MaxInline bytes: %v", err)
	}
}

// What a short queue does not hold is refused, and does not wait for ever.
func TestInlineShortQueue(t *testing.T) {
	p := newMessagePair(t, Config{QueueDepth: 8})
	ctx := context.Background()
	most := ipc.MaxInline + 7*ipc.BytesPerEntry
	p.receive(t, 1, 0, MaxInline, 1)
	op, err := p.conn[0].Post(ctx, &Work{Kind: Send, Inline: make([]byte, most)})
	must(t, err)
	must(t, op.Wait(ctx))
	if c := p.take(t, 1, 1); c[0].Len != most {
		t.Errorf("%+v", c)
	}
	if _, err := p.conn[0].Post(ctx, &Work{Kind: Send, Inline: make([]byte, most+1)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d bytes: %v", most+1, err)
	}
}
