package engine

import (
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/regmem"
	"multiedge/remap"
)

// Checksum selects how much of a plaintext frame CRC32C covers (protocol clause 2.5).
type Checksum uint8

const (
	ChecksumFull   Checksum = iota // headers and payload
	ChecksumHeader                 // headers only: the payload is trusted to the link's own check
)

// Config fixes an Endpoint's identity and policies. The zero value of each field has the meaning given.
type Config struct {
	Node      NodeID
	Name      string        // what peers dial; MaxNodeName bytes at most
	Epoch     uint64        // differs at each start of the node; never zero
	Seed      uint64        // of session and connection numbers
	Framing   frame.Framing // of the transport's frames; zero: frame.DefaultFraming
	Checksum  Checksum
	Scheduler string // one of sched.Names; empty: "adaptive"
	Profile   flowctl.Profile
	// operations a peer, and the owner, may have outstanding per connection, power of two; zero: 1024
	OpWindow int
	// memory for segments that wait behind a fence, and for many holes in operations and adverts, per session; zero: 16
	// MiB
	HeldBytes int
	MaxConns  int           // connections of the endpoint; zero: 65,536
	MaxDials  int           // of them those that wait for an answer of the peer; zero: 16,384
	DialTime  time.Duration // how long Dial waits for a peer and its answer; zero: 5 s
	DeadTime  time.Duration // silence after which a peer is declared down; zero: 15 s
	KeepAlive time.Duration // idle time after which a peer is probed; zero: 1 s
	HelloTime time.Duration // period of the broadcast hello; zero: 1 s
	// keys the peers may use; those of a connection that has ended serve nobody, and the shell revokes them when it
	// takes EvClosed (regmem.Table.RevokeOwner)
	Grants *regmem.Table
	// identity and authorised peers; Node must be Secure.Public.Node(). nil: plaintext, for trusted wires alone
	Secure   *secure.Node
	Keys     KeyLimits
	Deferred bool // the owner computes handshakes elsewhere (NextStep); else the endpoint does, at once
	// number of this endpoint among those that share the node's links, each with the frames of its own sessions
	Shard     int
	Shards    int      // how many there are; zero: 1; wire.MaxShards at most
	Placer    Placer   // copies payloads into place; nil: the endpoint does, at once
	CookieKey [32]byte // of clause 4.3, secret; zero: made from Seed, which nobody may guess then
	// copy payloads into the batch's buffer instead of referring to them: only to measure what that costs
	CopySend bool
	// the longest write with LocalDone that is copied, in bytes, at most the zero value's: 64 KiB; negative: none
	CopiedMost int
	Exchanger  *remap.Exchanger // receives long runs of pages for exchange; nil: none is exchanged
	// leave frames whose payload finds no memory unreceived, for their sender to send again, instead of parking it:
	// only to measure what that costs
	DropMisses bool
}
