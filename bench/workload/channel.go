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
