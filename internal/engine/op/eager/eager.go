// Package eager has the blocks of composed messages (PROTOCOL clause 18): writes and sends whose bytes travel while
// their owners still compose them. Sending is the end that composes, Drafts the other one. Neither knows connections or
// frames: package op asks what to send, and says what came.
//
// Blocks that the owner marks as written are sent, in whatever order, to a draft at the peer that nobody sees. Each
// time a block is sent with what may be new bytes it gets a greater stamp, and the peer keeps the greatest. Commit
// makes the composed message an ordinary operation, with the next number, whose one segment says which sum the stamps
// of all blocks have: no stamp of the peer's is greater than ours, so equal sums mean that it has the newest of each.
package eager

import (
	"math/bits"

	"multiedge/internal/engine/op/copies"
	"multiedge/internal/engine/queue"
	"multiedge/internal/wire"
)

// Block is the length of a block in bytes; the last of a message may be shorter.
const Block = wire.StageBlock

// blocks is how many blocks n bytes have.
func blocks(n uint64) int { return int((n + Block - 1) / Block) }

// State is what a connection has of composed messages, from the first on. O is the operation that a message becomes.
type State[O any] struct {
	Ours   Sending[O]
	Theirs Drafts
	Words  queue.Queue[Word]
}

// MostWords is how many words of a connection may wait to be sent when the peer makes us say another one: more than a
// peer that counts right can.
const MostWords = 4 * span

// Word is a Discard or an Unstaged to be sent.
type Word struct {
	Kind   wire.Kind
	Number uint32
}

// span is how far numbers of composed messages are apart at most, so that a word remembers which have ended.
const span = 64

// numbers are those before base, and those of the bits from base on.
type numbers struct {
	base uint32
	more uint64
}

func (n *numbers) has(i uint32) bool {
	d := int32(i - n.base)
	return d < 0 || d < span && n.more>>d&1 != 0
}

// fits reports whether i can be remembered.
func (n *numbers) fits(i uint32) bool { return int32(i-n.base) < span }

func (n *numbers) add(i uint32) {
	if n.has(i) || !n.fits(i) {
		return
	}
	n.more |= 1 << (i - n.base)
	k := bits.TrailingZeros64(^n.more)
	n.base += uint32(k)
	n.more >>= k
}

// Pool is what messages and drafts that ended left, to be used again.
type Pool[O any] struct {
	messages []*Message[O]
	drafts   [copies.Classes][]*Draft
	bytes    int // of drafts
}

// How much is kept: as many composed messages as a connection can have, and drafts of so many bytes.
const (
	mostMessages   = span
	MostIdleDrafts = 4 << 20
)

// Message returns a message that is composed in mem, and to which its owner gives an Op and a Name.
func (p *Pool[O]) Message(mem []byte) *Message[O] {
	var m *Message[O]
	if n := len(p.messages); n > 0 {
		m, p.messages = p.messages[n-1], p.messages[:n-1]
	} else {
		m = new(Message[O])
	}
	n := blocks(uint64(len(mem)))
	*m = Message[O]{Mem: mem, stamps: zeros(m.stamps, n), marks: zeros(m.marks, (n+63)/64)}
	return m
}

// zeros returns n zeros, in the memory of s if they fit.
func zeros[T uint32 | uint64](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	clear(s[:n])
	return s[:n]
}

// Keep takes back a message that nothing refers to any more.
func (p *Pool[O]) Keep(m *Message[O]) {
	var none O
	m.Op, m.Mem = none, nil
	if len(p.messages) < mostMessages {
		p.messages = append(p.messages, m)
	}
}
