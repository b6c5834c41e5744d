package op

import (
	"encoding/hex"
	"fmt"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/op/pieces"
	"multiedge/regmem"
)

// MaxInline is the number of bytes a write can carry by value in its Op (protocol clause 6.4).
const MaxInline = abi.MaxInline

// MaxPrivateData is the number of bytes a connection request or acceptance can carry (protocol clause 5.2).
const MaxPrivateData = 512

// MaxServiceName and MaxNodeName bound the names carried in set-up segments, in bytes.
const (
	MaxServiceName = 64
	MaxNodeName    = 64
)

// NodeID identifies a node across restarts. It is never zero.
type NodeID [8]byte

// String returns the identity in hexadecimal, the form Dial accepts.
func (id NodeID) String() string { return fmt.Sprintf("%x", id[:]) }

// ConnID names a connection of this endpoint. A number is not used again until every other one has been.
type ConnID uint32

// OpKind is what an operation does: the numbers of submissions.
type OpKind = abi.Op

const (
	OpWrite = abi.OpWrite
	OpRead  = abi.OpRead
	OpSend  = abi.OpSend // clause 14
	OpTell  = abi.OpTell // clause 14.9; see SetTell
)

// OpFlags modify an operation; each is orthogonal to the others (paper §2.1.1, §2.5.1).
type OpFlags = abi.Flags

const (
	BackwardFence = abi.FlagBackwardFence
	ForwardFence  = abi.FlagForwardFence
	Notify        = abi.FlagNotify
	LocalDone     = abi.FlagLocal
)

// Op is one operation as submitted. Local must stay valid and, for a write, unchanged until the operation's completion
// event: retransmission reads it again.
type Op struct {
	Kind     OpKind
	Flags    OpFlags
	Inline   uint8 // when Local is nil, a write of the first Inline bytes of Data
	Imm      uint32
	Token    uint64 // returned in the completion
	Late     uint64 // with LocalDone: returned as the Token of EvLate
	Local    []byte
	Region   *regmem.Region // its InFlight counts the operation while Local is used; may be nil
	LocalOff uint64         // where in Region Local begins; of regions with a Back alone
	Pieces   *pieces.List   // in place of Local, if not nil; as with Region
	eager    *compose       // its bytes travelled ahead (Compose)
	Key      regmem.Key     // of the remote memory
	Off      uint64         // within the grant
	// of a message: how many nanoseconds it may wait for a buffer of the peer's, 0: as long as it takes, NoWait: not at
	// all
	Patience uint64
	Data     [MaxInline]byte
}

// OK is success; abi.go has the other statuses.
const OK = abi.StatusOK

// EventKind says what an Event reports.
type EventKind uint8

const (
	// Conn, Token, Status, Value: an operation of ours ended; with Local its local bytes are the owner's again, the
	// operation goes on, and EvLate follows
	EvComplete EventKind = iota + 1
	// Conn: TakeNotify has at least one notification (edge-triggered; take until it says no)
	EvNotify
	// Conn, Token, Status, Msg: a posted buffer is its owner's again, with a message if Status is OK; those of one
	// connection in the order of sends
	EvReceived
	// Conn, Service, Peer, Data: a peer asks for a service; answer with Accept or Refuse. Token: the InsideToken of a
	// request of this node; 0: of another
	EvIncoming
	EvConnected // Conn, Data, Peer: our Dial was accepted, or our Accept is established
	// Conn, Status, Text: the connection is over; no further event names it. A failed Dial ends here too
	EvClosed
	EvAdvert    // Conn, Advert: the peer exported memory under a name
	EvWithdrawn // Conn, Advert.Key: the peer revoked it
	EvPeerUp    // Peer, PeerName
	EvPeerDown  // Peer, PeerName, Status
	EvPath      // Peer, Link, Text, Minor: a path changed state
	// Link, Text: another host, of that address, says Hello with this node's identity; once a minute at most
	EvClaim
	// Conn, Token (Op.Late), Status, Data: a write ended that had completed with Local
	EvLate
	// Conn, Token, Status, Spans: a redirection has ended, and dst is its owner's; Spans were redirected, nothing else
	EvRedirected
)

// Event is one thing the owner must know. Strings and slices belong to the receiver, but for the Data of EvComplete.
type Event struct {
	Kind     EventKind
	Status   abi.Status
	Link     uint8
	Local    bool // EvComplete
	Minor    bool // EvPath: the path has become suspect, or good again after that; a pause of either host is enough
	Conn     ConnID
	Token    uint64
	Value    uint64 // what an atomic that succeeded found, else 0
	Peer     NodeID
	PeerName string
	Service  string
	Text     string
	// of a request or its answer; of a write that failed, its Local: frames that were handed out may still refer
	// to it
	Data   []byte
	Spans  [2]Span        // of EvRedirected: within it, in order; those without bytes are none
	Notes  []Notification // EvClosed: those not taken yet
	Advert Advert
	Msg    Arrived
}

// Notification reports a write with the Notify flag that was applied to our memory.
type Notification struct {
	Imm uint32
	Len uint32     // bytes of the write, saturated at 2^32-1
	Key regmem.Key // of the grant that was written to
	Off uint64     // of the first byte, within the grant
}

// Advert announces exported memory under a name.
type Advert struct {
	Name   string
	Key    regmem.Key
	Size   uint64
	Perm   regmem.Perm
	Number uint32 // of EvAdvert: of two of a name the greater is the newer
}

// DialOptions modify a connection request.
type DialOptions struct {
	Ordered   bool   // each operation is applied after the one before it, in both directions
	Overlap   bool   // of Ordered: but performed once each read and atomic before it is being answered (clause 5.3)
	Data      []byte // private data for the acceptor, MaxPrivateData bytes at most
	Scheduler string // of the session, if this dial creates it; empty: Config.Scheduler
	Timeout   time.Duration
	Owner     fair.Owner
	Ping      bool // the request itself measures: it is in no counter of connections
}

// ParseNodeID reads the hexadecimal form of an identity.
func ParseNodeID(s string) (id NodeID, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, true
}
