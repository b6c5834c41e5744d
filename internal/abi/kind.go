package abi

import "fmt"

// Kind names a request or an event of the control socket (A4). A reply has the kind and id of its request.
type Kind uint16

// Requests of a client.
const (
	KindHello      Kind = 1
	KindRegister   Kind = 2
	KindMapped     Kind = 3
	KindDeregister Kind = 4
	KindDial       Kind = 5
	KindListen     Kind = 6
	KindUnlisten   Kind = 7
	KindAccept     Kind = 8
	KindRefuse     Kind = 9
	KindExport     Kind = 10
	KindRevoke     Kind = 11
	KindClose      Kind = 12
	KindAbort      Kind = 13
	KindMap        Kind = 14
	KindAdvise     Kind = 15
	KindUsage      Kind = 16
	KindQueue      Kind = 24
	KindUnqueue    Kind = 25
	KindJoin       Kind = 26
)

// Events of the daemon.
const (
	KindIncoming  Kind = 64
	KindAdvert    Kind = 65
	KindWithdrawn Kind = 66
	KindEnded     Kind = 67
	KindClosed    Kind = 68
)

// Requests that only tools make, and the event they may cause (A4.3).
const (
	KindStatus  Kind = 256
	KindDoctor  Kind = 257
	KindVersion Kind = 258
	KindPing    Kind = 259
	KindDrain   Kind = 260
	KindReload  Kind = 261
	KindTrace   Kind = 262
	KindWatch   Kind = 263
	KindEvent   Kind = 320
)

// Bounds of the kinds that C programs know.
const (
	firstEvent = KindIncoming
	firstTool  = KindStatus
)

// KindInfo is what the register knows of a Kind: the row of A4.1 or A4.2. Structs are named by their clause.
type KindInfo struct {
	Kind        Kind
	Word        string
	Struct      string // of the request or event; empty: JSON
	Reply       string // struct of the reply
	Comes       string // when the reply is sent
	Descriptors string // that come with the reply
}

// Event reports whether a kind is an event of the daemon for every client; Tool whether it is edgectl's (A4.3).
func (k *KindInfo) Event() bool { return k.Kind >= firstEvent && k.Kind < firstTool }
func (k *KindInfo) Tool() bool  { return k.Kind >= firstTool }

// Kinds has every kind, in the order of numbers.
var Kinds = [...]KindInfo{
	{KindHello, "hello", "A5.1", "A5.2", "at once", "rings, submit doorbell, watcher (A8)"},
	{KindRegister, "register", "A5.3", "A5.4", "at once", "memory, without OWN"},
	{KindMapped, "mapped", "A5.5", "header", "when the region is pinned", ""},
	{KindDeregister, "deregister", "A5.5", "header", "at once", ""},
	{KindDial, "dial", "A5.6", "A5.7", "when the peer has accepted or refused", ""},
	{KindListen, "listen", "A5.8", "header", "at once", ""},
	{KindUnlisten, "unlisten", "A5.8", "header", "at once", ""},
	{KindAccept, "accept", "A5.9", "A5.7", "when the connection is established", ""},
	{KindRefuse, "refuse", "A5.10", "header", "at once", ""},
	{KindExport, "export", "A5.11", "A5.12", "at once", ""},
	{KindRevoke, "revoke", "A5.13", "header", "when no access can follow", ""},
	{KindClose, "close", "A5.14", "A5.14", "when everything in flight has ended", ""},
	{KindAbort, "abort", "A5.14", "A5.14", "at once", ""},
	{KindMap, "map", "A5.19", "A5.20", "at once", "memory, hints"},
	{KindAdvise, "advise", "A5.21", "header", "at once; of hold: when the range is pinned", ""},
	{KindUsage, "usage", "A5.22", "A5.23", "at once", ""},
	{KindQueue, "queue", "header", "A5.24", "at once", ""},
	{KindUnqueue, "unqueue", "A5.24", "header", "at once", ""},
	{KindJoin, "join", "A5.25", "header", "at once", ""},

	{Kind: KindIncoming, Word: "incoming", Struct: "A5.15"},
	{Kind: KindAdvert, Word: "advert", Struct: "A5.16"},
	{Kind: KindWithdrawn, Word: "withdrawn", Struct: "A5.13"},
	{Kind: KindEnded, Word: "ended", Struct: "A5.17"},
	{Kind: KindClosed, Word: "closed", Struct: "A5.17"},

	{Kind: KindStatus, Word: "status"},
	{Kind: KindDoctor, Word: "doctor"},
	{Kind: KindVersion, Word: "version"},
	{Kind: KindPing, Word: "ping"},
	{Kind: KindDrain, Word: "drain"},
	{Kind: KindReload, Word: "reload"},
	{Kind: KindTrace, Word: "trace"},
	{Kind: KindWatch, Word: "watch"},
	{Kind: KindEvent, Word: "event"},
}

// String returns the word of a kind, or its number.
func (k Kind) String() string {
	for i := range Kinds {
		if Kinds[i].Kind == k {
			return Kinds[i].Word
		}
	}
	return fmt.Sprintf("kind %d", uint16(k))
}
