package engine

import (
	"fmt"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/secure"
	"multiedge/regmem"
	"multiedge/remap"
)

// MaxLinks is the number of local links one endpoint can use (paper §2.5: up to 64, the width of a bit set).
const MaxLinks = 64

// MaxInline is the number of bytes a write can carry by value in its Op (protocol clause 6.4).
const MaxInline = 24

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

// Checksum selects how much of a plaintext frame CRC32C covers (protocol clause 2.5).
type Checksum uint8

const (
	ChecksumFull   Checksum = iota // headers and payload
	ChecksumHeader                 // headers only: the payload is trusted to the link's own check
)

// Config fixes an Endpoint's identity and policies. The zero value of each field has the meaning given.
type Config struct {
	Node      NodeID
	Name      string // what peers dial; MaxNodeName bytes at most
	Epoch     uint64 // differs at each start of the node; never zero
	Seed      uint64 // of session and connection numbers
	EtherType uint16 // zero: 0x88B5
	Checksum  Checksum
	Scheduler string // one of sched.Names; empty: "adaptive"
	Profile   flowctl.Profile
	OpWindow  int           // operations a peer, and the owner, may have outstanding per connection, power of two; zero: 1024
	HeldBytes int           // memory for segments that wait behind a fence, and for many holes in operations and adverts, per session; zero: 16 MiB
	MaxConns  int           // connections of the endpoint; zero: 65,536
	DialTime  time.Duration // how long Dial waits for a peer and its answer; zero: 5 s
	DeadTime  time.Duration // silence after which a peer is declared down; zero: 15 s
	KeepAlive time.Duration // idle time after which a peer is probed; zero: 1 s
	HelloTime time.Duration // period of the broadcast hello; zero: 1 s
	Grants    *regmem.Table // keys the peers may use
	Secure    *secure.Node  // identity and authorised peers; Node must be Secure.Public.Node(). nil: plaintext, for trusted wires alone
	Shard     int           // number of this endpoint among those that share the node's links, each with the frames of its own sessions
	Shards    int           // how many there are; zero: 1; wire.MaxShards at most
	Placer    Placer        // copies payloads into place; nil: the endpoint does, at once
	CookieKey [32]byte      // of clause 4.3, secret; zero: made from Seed, which nobody may guess then
	CopySend  bool          // copy payloads into the batch's buffer instead of referring to them: only to measure what that costs
	Stage     *remap.Stage  // receives long runs of pages for exchange; nil: none is exchanged
}

// LinkConfig describes one local link. Engine copies it.
type LinkConfig struct {
	Name    string
	MAC     [6]byte
	MTU     int     // of the interface: bytes after the Ethernet header
	RxSlots int     // frames the receive side holds before the kernel drops; announced to peers as a limit
	Shuffle uint16  // header bytes the peer must shuffle past for page alignment (remap); 0: driver scatters or copies
	Weight  float64 // static weight for wsrr and wd; zero: 1

	// Super is how many bytes of frames of one length and session the driver sends as one datagram if they follow one another (clause 12), and Overhead what its headers
	// take of the MTU. Zero: it neither sends nor takes datagrams.
	Super, Overhead int
}

// OpKind is what an operation does.
type OpKind uint8

const (
	OpWrite OpKind = 1 // local memory to remote memory
	OpRead  OpKind = 2 // remote memory to local memory
)

// OpFlags modify an operation; each is orthogonal to the others (paper §2.1.1, §2.5.1).
type OpFlags uint8

const (
	BackwardFence OpFlags = 1 << iota // apply after every earlier operation of the connection
	ForwardFence                      // later operations apply after this one
	Notify                            // tell the destination's owner, with Imm, once applied
)

// Op is one operation as submitted. Local must stay valid and, for a write, unchanged until the operation's completion event:
// retransmission reads it again.
type Op struct {
	Kind   OpKind
	Flags  OpFlags
	Inline uint8 // when Local is nil, a write of the first Inline bytes of Data
	Imm    uint32
	Token  uint64 // returned in the completion
	Local  []byte
	Region *regmem.Region // its InFlight counts the operation while Local is used; may be nil
	Key    regmem.Key     // of the remote memory
	Off    uint64         // within the grant
	Data   [MaxInline]byte
}

// Status says how an operation or a connection ended. Zero is success.
type Status uint8

const (
	OK                Status = iota
	StatusKey                // remote key unknown or revoked
	StatusOwner              // remote key belongs to another connection
	StatusPermission         // remote memory does not allow this access
	StatusBounds             // outside the granted range
	StatusClosed             // the connection was closed before the operation finished
	StatusPeerDown           // the peer stopped answering, or restarted
	StatusPeerUnknown        // no node of that name was heard on any link
	StatusNoService          // nobody waits for that service at the peer
	StatusRefused            // the service refused the connection
	StatusLimit              // a quota or table is full
	StatusAborted            // the local owner abandoned the connection
	StatusTimeout            // no answer in time
	StatusMTU                // the path cannot carry the smallest frame the peers agreed on
	StatusVersion            // the peer speaks another protocol version
	StatusStranger           // one end does not authorise the other's key
)

var statusText = [...]string{
	OK: "success", StatusKey: "remote key unknown or revoked", StatusOwner: "remote key belongs to another connection",
	StatusPermission: "remote memory does not permit this access", StatusBounds: "access outside the exported range",
	StatusClosed: "connection closed", StatusPeerDown: "peer down", StatusPeerUnknown: "peer unknown",
	StatusNoService: "service not offered by the peer", StatusRefused: "connection refused", StatusLimit: "limit reached",
	StatusAborted: "connection aborted", StatusTimeout: "timed out", StatusMTU: "no frame size both ends can carry",
	StatusVersion: "peer speaks another protocol version", StatusStranger: "not authorised",
}

func (s Status) String() string {
	if int(s) < len(statusText) {
		return statusText[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// EventKind says what an Event reports.
type EventKind uint8

const (
	EvComplete  EventKind = iota + 1 // Conn, Token, Status: an operation of ours ended
	EvNotify                         // Conn: TakeNotify has at least one notification (edge-triggered; take until it says no)
	EvIncoming                       // Conn, Service, Peer, Data: a peer asks for a service; answer with Accept or Refuse
	EvConnected                      // Conn, Data, Peer: our Dial was accepted, or our Accept is established
	EvClosed                         // Conn, Status, Text: the connection is over; no further event names it. A failed Dial ends here too
	EvAdvert                         // Conn, Advert: the peer exported memory under a name
	EvWithdrawn                      // Conn, Advert.Key: the peer revoked it
	EvPeerUp                         // Peer, PeerName
	EvPeerDown                       // Peer, PeerName, Status
	EvPath                           // Peer, Link, Text, Minor: a path changed state
	EvClaim                          // Link, Data: another host, of that MAC, says Hello with this node's identity; once a minute at most
)

// Event is one thing the owner must know. Strings and slices belong to the receiver, but for the Data of EvComplete.
type Event struct {
	Kind     EventKind
	Status   Status
	Link     uint8
	Minor    bool // EvPath: the path has become suspect, or good again after that; a pause of either host is enough
	Conn     ConnID
	Token    uint64
	Peer     NodeID
	PeerName string
	Service  string
	Text     string
	Data     []byte         // of a request or its answer; a MAC; of a write that failed, its Local: frames that were handed out may still refer to it
	Notes    []Notification // EvClosed: those not taken yet
	Advert   Advert
}

// Notification reports a write with the Notify flag that was applied to our memory.
type Notification struct {
	Imm uint32
	Len uint32 // bytes of the write, saturated at 2^32-1
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
	Data      []byte // private data for the acceptor, MaxPrivateData bytes at most
	Scheduler string // of the session, if this dial creates it; empty: Config.Scheduler
	Timeout   time.Duration
	Ping      bool // the request itself measures: it is in no counter of connections
}
