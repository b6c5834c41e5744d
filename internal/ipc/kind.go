package ipc

import "fmt"

// Kind names a request or an event (docs/ABI.md A4). A reply has the kind and id of its request.
type Kind uint16

// Requests of a client; the reply's fields are after the arrow.
const (
	KindHello Kind = 1 // Greeting -> Greeting; descriptors: rings, submit doorbell, watcher of the complete doorbell
	// Size -> Region, Size; descriptor: the memory, to be mapped for writing and closed. Or, with FeatureMemory, Size,
	// Own and the client's memory as a descriptor -> Region, Size: the region is ready. With FeatureHeap Heap, Size,
	// Off and the descriptor of all memory of the process likewise
	KindRegister Kind = 2
	// Region -> ; the client has mapped it: nobody else can any more, nor punch holes, it is pinned, and operations may
	// use it
	KindMapped     Kind = 3
	KindDeregister Kind = 4  // Region ->
	KindDial       Kind = 5  // Peer, Service, Ordered, Data, Scheduler, Timeout -> Conn, Data, Peer; or Error
	KindListen     Kind = 6  // Service ->
	KindUnlisten   Kind = 7  // Service ->
	KindAccept     Kind = 8  // Conn, Data -> Conn, Peer; when established
	KindRefuse     Kind = 9  // Conn, Text ->
	KindExport     Kind = 10 // Conn, Region, Off, Size, Perm, Name -> Conn, Key, Size
	KindRevoke     Kind = 11 // Conn, Key -> ; when no access through the key can follow
	KindClose      Kind = 12 // Conn -> ; when drained
	KindAbort      Kind = 13 // Conn ->

	// with FeatureSpaces: Size, Space -> Region, Size, Space; descriptors: the memory, to be mapped like that of
	// KindRegister, and the hints
	KindMap     Kind = 14
	KindAdvise  Kind = 15 // Region, Off, Size, Advice -> ; hold: when it is pinned
	KindUsage   Kind = 16 // Region, Off, Size -> Usage
	KindQueue   Kind = 24 // -> Queue: a receive queue that connections can share
	KindUnqueue Kind = 25 // Queue -> ; no connection takes from it any more
	KindJoin    Kind = 26 // Conn, Queue -> ; the connection takes its buffers from the queue
)

// Events of the daemon; ID is zero.
const (
	KindIncoming  Kind = 64 // Conn, Service, Peer, Data
	KindAdvert    Kind = 65 // Conn, Name, Key, Size, Perm, Count: a uint32; of two of a name the greater is the newer
	KindWithdrawn Kind = 66 // Conn, Key
	// Conn, Code, Text: the connection is over, but notifications of it are left, which wait for credit or room; closed
	// follows them
	KindEnded  Kind = 67
	KindClosed Kind = 68 // Conn, Code, Text: the connection is over; the last message naming it
)

// Requests that only tools make, and the event they may cause. What follows the header is JSON (A4.3).
const (
	KindStatus  Kind = 256 // What, Page -> Body, More
	KindDoctor  Kind = 257 // Page -> Body, More
	KindVersion Kind = 258 // -> Body
	KindPing    Kind = 259 // Peer, Count, Timeout -> Body
	KindDrain   Kind = 260 // What: "", or "undo" ->
	KindReload  Kind = 261 // -> Body; authorised peers are read again
	KindTrace   Kind = 262 // Name, Size -> Body; descriptor: a pipe of records of frames, package trace
	KindWatch   Kind = 263 // -> ; then KindEvent, until the socket is closed
	KindEvent   Kind = 320 // Body: what happened, for who asked for KindWatch
)

// form is what follows the header: a struct of size bytes, header included, whose fields are at fixed places.
type form struct {
	size   int
	fields func(f *body, m *Message)
}

// bare is a message that is its header alone.
var bare = form{headerSize, func(*body, *Message) {}}

// formats says how every kind is sent: as a request or an event, and as the reply to it. fields is nil where the body
// is JSON. Kinds that are not here are decoded as bare: the receiver answers them (CodeUnknownKind) or ignores them.
var formats = map[Kind]struct {
	name         string
	first, reply form
}{
	KindHello:      {"hello", form{128, helloRequest}, form{184, helloReply}},
	KindRegister:   {"register", form{40, registerRequest}, form{32, registerReply}},
	KindMapped:     {"mapped", form{24, oneRegion}, bare},
	KindDeregister: {"deregister", form{24, oneRegion}, bare},
	KindDial:       {"dial", form{744, dialRequest}, form{608, connected}},
	KindListen:     {"listen", form{88, oneService}, bare},
	KindUnlisten:   {"unlisten", form{88, oneService}, bare},
	KindAccept:     {"accept", form{544, acceptRequest}, form{608, connected}},
	KindRefuse:     {"refuse", form{1056, refuseRequest}, bare},
	KindExport:     {"export", form{120, exportRequest}, form{40, exportReply}},
	KindRevoke:     {"revoke", form{32, keyOfConn}, bare},
	KindClose:      {"close", form{24, oneConn}, form{24, oneConn}},
	KindAbort:      {"abort", form{24, oneConn}, form{24, oneConn}},
	KindMap:        {"map", form{48, mapRequest}, form{48, mapReply}},
	KindAdvise:     {"advise", form{40, adviseRequest}, bare},
	KindUsage:      {"usage", form{40, usageRequest}, form{112, usageReply}},

	KindQueue:   {"queue", bare, form{24, oneQueue}},
	KindUnqueue: {"unqueue", form{24, oneQueue}, bare},
	KindJoin:    {"join", form{24, connAndQueue}, bare},

	KindIncoming:  {"incoming", form{672, incomingEvent}, bare},
	KindAdvert:    {"advert", form{120, advertEvent}, bare},
	KindWithdrawn: {"withdrawn", form{32, keyOfConn}, bare},
	KindEnded:     {"ended", form{1056, endEvent}, bare},
	KindClosed:    {"closed", form{1056, endEvent}, bare},

	KindStatus:  {name: "status"},
	KindDoctor:  {name: "doctor"},
	KindVersion: {name: "version"},
	KindPing:    {name: "ping"},
	KindDrain:   {name: "drain"},
	KindReload:  {name: "reload"},
	KindTrace:   {name: "trace"},
	KindWatch:   {name: "watch"},
	KindEvent:   {name: "event"},
}

// failure is the reply of any kind that says why its request failed.
var failure = form{1056, failedReply}

// String returns the name of a kind, or its number.
func (k Kind) String() string {
	if f, ok := formats[k]; ok {
		return f.name
	}
	return fmt.Sprintf("kind %d", uint16(k))
}
