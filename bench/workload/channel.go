package workload

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"

	"multiedge/bench/kit"
	"multiedge/edge"
)

// The control region: what the peer writes, and where own messages wait to be written.
const (
	inboxSize   = 32 << 10
	endOff      = inboxSize - 8 // where the peer writes how many messages it sent
	controlSize = 2 * inboxSize
)

// Names of exports.
const (
	controlName = "control"
	sourceName  = "source"
	targetName  = "target"
)

// channel passes small JSON messages between the ends of a series through their control regions, and signals without
// payload. One message may be under way in each direction; the protocol in doc.go takes turns.
type channel struct {
	conn   *edge.Conn
	local  *edge.Region
	remote *edge.RemoteRegion
}

// message is what travels. Exactly one field is set.
type message struct {
	Run   *Spec   `json:"run,omitempty"`   // client: measure this
	Ready *ready  `json:"ready,omitempty"` // server: begin
	Done  *Report `json:"done,omitempty"`  // server: this is what I saw
	Bye   bool    `json:"bye,omitempty"`   // client: no more
}

// ready answers a run; with an error, the measurement does not take place.
type ready struct {
	Error   string `json:"error,omitempty"`
	Streams string `json:"streams,omitempty"` // the service to dial, if the run wants byte streams
}

// send delivers m behind everything sent before and ahead of everything sent later. When it returns, the memory it was
// sent from may be used again.
func (ch *channel) send(ctx context.Context, m *message) {
	b := kit.Get(json.Marshal(m))
	if len(b) > endOff {
		kit.Fail("control message of %d bytes: %d are possible", len(b), endOff)
	}
	copy(ch.local.Bytes()[inboxSize:], b)
	kit.Do(ctx, ch.conn, &edge.Work{
		Kind: edge.Write, Flags: edge.Notify | edge.BackwardFence | edge.ForwardFence, Imm: immControl | uint32(len(b)),
		Local: ch.local, LocalOff: inboxSize, Len: len(b), Remote: ch.remote,
	})
}

// signal delivers a notification without payload, in an order that flags say. It does not wait for its completion.
func (ch *channel) signal(ctx context.Context, imm uint32, flags edge.Flags) {
	kit.Get(ch.conn.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify | flags, Imm: imm, Local: ch.local,
		Remote: ch.remote}))
}

// end tells the peer that all of count messages are complete, once they are.
func (ch *channel) end(ctx context.Context, count uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], count)
	kit.Do(ctx, ch.conn, &edge.Work{Kind: edge.Write, Flags: edge.Notify | edge.BackwardFence, Imm: immEnd,
		Inline: b[:], Remote: ch.remote, RemoteOff: endOff})
}

// endCount is the number the peer's end carried.
func (ch *channel) endCount() uint64 { return binary.LittleEndian.Uint64(ch.local.Bytes()[endOff:]) }

// receive waits for a control message. Anything else that arrives is against the protocol.
func (ch *channel) receive(ctx context.Context) *message {
	n := kit.Get(ch.conn.WaitNotify(ctx))
	kind, size := split(n.Imm)
	if kind != immControl || size > endOff {
		unexpected(n.Imm, "a control message")
	}
	var m message
	if err := json.Unmarshal(ch.local.Bytes()[:size], &m); err != nil {
		kit.Fail("control message: %w", err)
	}
	return &m
}

// awaitGo waits until the client begins.
func (ch *channel) awaitGo(ctx context.Context) {
	if n := kit.Get(ch.conn.WaitNotify(ctx)); n.Imm != immGo {
		unexpected(n.Imm, "the client's go")
	}
}

// errProtocol means that the two ends do not agree on what comes next.
var errProtocol = errors.New("the peer broke the benchmark's protocol")

// unexpected ends the work: a notification does not fit.
func unexpected(imm uint32, want string) {
	kit.Fail("%w: notification %#x instead of %s", errProtocol, imm, want)
}

// A notification's immediate: what it means in the upper bits, a value in the lower.
const (
	immBits = 28
	immMask = 1<<immBits - 1

	immControl = 1 << immBits // a control message of value bytes lies in the control region
	immMessage = 2 << immBits // message number value (its lower bits) is complete in the data region
	immCredit  = 3 << immBits // the receiver has verified all messages below value (its lower bits)
	immEnd     = 4 << immBits // all messages were sent; their number lies in the control region
	immEndAck  = 5 << immBits // all messages are here
	immGo      = 6 << immBits // the client begins: a server that sends begins as well
)

// split takes an immediate apart.
func split(imm uint32) (kind uint32, value uint64) { return imm &^ immMask, uint64(imm & immMask) }

// advance returns base moved up to the number whose lower immBits are low, if that is ahead of it; old news leave base
// alone.
func advance(base, low uint64) uint64 {
	if ahead := (low - base) & immMask; ahead < 1<<(immBits-1) {
		return base + ahead
	}
	return base
}
