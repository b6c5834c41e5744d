package engine

import (
	"multiedge/internal/engine/count"
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
)

// The words that owners of an Endpoint use and that the packages below declare, where each is described.

type (
	NodeID       = op.NodeID
	ConnID       = op.ConnID
	QueueID      = op.QueueID
	Owner        = op.Owner
	Key          = op.Key
	DialOptions  = op.DialOptions
	Op           = op.Op
	OpKind       = op.OpKind
	OpFlags      = op.OpFlags
	Atomic       = op.Atomic
	Pieces       = op.Pieces
	Receive      = op.Receive
	Redirection  = op.Redirection
	Span         = op.Span
	Advert       = op.Advert
	Notification = op.Notification
	Arrived      = op.Arrived
	Event        = op.Event
	EventKind    = op.EventKind
	Placer       = op.Placer
	Look         = op.Look
	ConnStatus   = op.ConnStatus
)

// Of links, peers and sessions.
type (
	LinkConfig   = path.LinkConfig
	PathCounters = path.Counters
	KeyLimits    = peering.KeyLimits
	Arrival      = peering.Arrival
	Reader       = peering.Reader
	Step         = peering.Step
	Claim        = peering.Claim
	PeerStatus   = peering.PeerStatus
	PathStatus   = peering.PathStatus
	NameTrouble  = peering.NameTrouble
	Trouble      = peering.Trouble
)

// What is counted.
type (
	Counters = count.Counters
	Latency  = count.Latency
)

// Bounds.
const (
	MaxLinks       = path.MaxLinks
	MaxInline      = op.MaxInline
	MaxPieces      = op.MaxPieces
	MaxEager       = op.MaxEager
	MaxPrivateData = op.MaxPrivateData
	MaxServiceName = op.MaxServiceName
	MaxNodeName    = op.MaxNodeName
)

// Kinds and flags of operations.
const (
	OpWrite  = op.OpWrite
	OpRead   = op.OpRead
	OpAtomic = op.OpAtomic
	OpSend   = op.OpSend
	OpTell   = op.OpTell

	BackwardFence = op.BackwardFence
	ForwardFence  = op.ForwardFence
	Notify        = op.Notify
	LocalDone     = op.LocalDone

	NoWait = op.NoWait
)

// OK is success; abi.go has the other statuses.
const OK = op.OK

// Kinds of events.
const (
	EvComplete   = op.EvComplete
	EvNotify     = op.EvNotify
	EvReceived   = op.EvReceived
	EvIncoming   = op.EvIncoming
	EvConnected  = op.EvConnected
	EvClosed     = op.EvClosed
	EvAdvert     = op.EvAdvert
	EvWithdrawn  = op.EvWithdrawn
	EvPeerUp     = op.EvPeerUp
	EvPeerDown   = op.EvPeerDown
	EvPath       = op.EvPath
	EvClaim      = op.EvClaim
	EvLate       = op.EvLate
	EvRedirected = op.EvRedirected
)

// Kinds of trouble.
const (
	NoTrouble          = peering.NoTrouble
	TroublePlaintext   = peering.TroublePlaintext
	TroubleSealed      = peering.TroubleSealed
	TroubleOtherKey    = peering.TroubleOtherKey
	TroubleWrongKey    = peering.TroubleWrongKey
	TroubleUnwelcome   = peering.TroubleUnwelcome
	TroubleRefused     = peering.TroubleRefused
	TroubleNoAnswer    = peering.TroubleNoAnswer
	TroubleNoHandshake = peering.TroubleNoHandshake
	TroubleNoDatagram  = peering.TroubleNoDatagram
)

// Errors of Dial.
var (
	ErrDials = op.ErrDials
	ErrConns = op.ErrConns
)

// InsideToken is the Token of EvIncoming where a shard of this node asks, whose connection has that number there. It is
// not zero.
func InsideToken(shard int, id ConnID) uint64 { return op.InsideToken(shard, id) }

// Whole returns the Arrival of a complete frame.
func Whole(bytes []byte) Arrival { return peering.Whole(bytes) }
