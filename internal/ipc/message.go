package ipc

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Version is the version of messages and rings together. Client and daemon must agree exactly; hello checks it.
const Version = 1

// MaxMessage is the largest control packet, in bytes. Larger answers are split in pages (Message.Page, Message.More).
const MaxMessage = 64 << 10

// Bounds of the fields of a Message, in bytes.
const (
	MaxName = 64  // nodes, services, exports, schedulers
	MaxData = 512 // private data of dial and accept
	MaxText = 1024
)

// Kind names a request or event. A reply has the kind and ID of its request.
type Kind string

// Requests of a client; the reply's fields are after the arrow.
const (
	KindHello      Kind = "hello"      // Version, PID, Depth, Shard -> Version, Shard, Node, Name, Rings, Window; descriptors: rings, submit doorbell, complete doorbell
	KindRegister   Kind = "register"   // Size -> Region, Size; descriptor: the memory
	KindDeregister Kind = "deregister" // Region ->
	KindDial       Kind = "dial"       // Peer, Service, Ordered, Data, Scheduler, Timeout -> Conn, Data, Peer; or Error
	KindListen     Kind = "listen"     // Service ->
	KindUnlisten   Kind = "unlisten"   // Service ->
	KindAccept     Kind = "accept"     // Conn, Data -> Conn; when established
	KindRefuse     Kind = "refuse"     // Conn, Text ->
	KindExport     Kind = "export"     // Conn, Region, Off, Size, Perm, Name -> Key
	KindRevoke     Kind = "revoke"     // Conn, Key -> ; when no access through the key can follow
	KindClose      Kind = "close"      // Conn -> ; when drained
	KindAbort      Kind = "abort"      // Conn ->
	KindStatus     Kind = "status"     // What, Page -> Body, More
	KindPing       Kind = "ping"       // Peer, Count -> Body
	KindDrain      Kind = "drain"      // ->
	KindReload     Kind = "reload"     // -> Body; authorised peers are read again
	KindDoctor     Kind = "doctor"     // Page -> Body, More
	KindVersion    Kind = "version"    // -> Body
	KindTrace      Kind = "trace"      // Name, Size -> Body; descriptor: a pipe of records of frames, package trace
)

// Events of the daemon; ID is zero.
const (
	KindIncoming  Kind = "incoming"  // Conn, Service, Peer, Data
	KindAdvert    Kind = "advert"    // Conn, Name, Key, Size, Perm, Count: of two of a name the greater is the newer
	KindWithdrawn Kind = "withdrawn" // Conn, Key
	KindEnded     Kind = "ended"     // Conn, Code, Text: the connection is over, but notifications of it are left, which wait for credit or room; closed follows them
	KindClosed    Kind = "closed"    // Conn, Code, Text: the connection is over; the last message naming it
)

var requests = map[Kind]bool{
	KindHello: true, KindRegister: true, KindDeregister: true, KindDial: true, KindListen: true, KindUnlisten: true, KindAccept: true,
	KindRefuse: true, KindExport: true, KindRevoke: true, KindClose: true, KindAbort: true, KindStatus: true, KindPing: true,
	KindDrain: true, KindReload: true, KindDoctor: true, KindVersion: true, KindTrace: true,
}

// Request reports whether k is a request this version knows. Others must be answered by CodeUnknownKind.
func (k Kind) Request() bool { return requests[k] }

// Message is one control packet: a request (ID not zero), its reply (same ID and Kind) or an event (ID zero).
// Which fields matter depends on Kind; the others are zero and not sent.
type Message struct {
	ID    uint64 `json:"id,omitempty"`
	Kind  Kind   `json:"kind"`
	Error *Error `json:"error,omitempty"` // of a reply: the request failed

	Version uint32 `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Depth   int    `json:"depth,omitempty"`
	Shard   int    `json:"shard,omitempty"` // hello: the wished one, from 1; 0: any. Of its reply: the client's
	Node    string `json:"node,omitempty"`  // node id in hexadecimal
	Name    string `json:"name,omitempty"`  // hello: node name; export, advert: name of the memory
	Rings   Layout `json:"rings,omitzero"`
	Window  int    `json:"window,omitempty"` // operations in flight allowed per connection

	Conn    uint32 `json:"conn,omitempty"`
	Peer    string `json:"peer,omitempty"`
	Service string `json:"service,omitempty"`
	Data    []byte `json:"data,omitempty"`
	Ordered bool   `json:"ordered,omitempty"`

	Scheduler string        `json:"scheduler,omitempty"`
	Timeout   time.Duration `json:"timeout,omitempty"` // nanoseconds; zero: the daemon's own

	Region uint32 `json:"region,omitempty"`
	Key    uint64 `json:"key,omitempty"`
	Off    uint64 `json:"off,omitempty"`
	Size   uint64 `json:"size,omitempty"` // bytes: of a region, an export, an advert
	Perm   uint8  `json:"perm,omitempty"` // regmem.Perm

	Code  string          `json:"code,omitempty"` // closed: Status.Code
	Text  string          `json:"text,omitempty"`
	What  string          `json:"what,omitempty"`
	Count int             `json:"count,omitempty"`
	Page  int             `json:"page,omitempty"`
	More  bool            `json:"more,omitempty"` // further pages follow
	Body  json.RawMessage `json:"body,omitempty"`
}

// Error is why a request failed. Text says what to do about it.
type Error struct {
	Code string `json:"code"`
	Text string `json:"text,omitempty"`
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Code
	}
	return e.Code + ": " + e.Text
}

// Errorf makes an Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Reply returns the successful answer to m, without fields; Fail the unsuccessful one.
func (m *Message) Reply() *Message { return &Message{ID: m.ID, Kind: m.Kind} }

// Fail returns the answer to m that reports err, whose Code is CodeInternal unless it is an *Error.
func (m *Message) Fail(err error) *Message {
	e, ok := err.(*Error)
	if !ok {
		e = &Error{Code: CodeInternal, Text: err.Error()}
	}
	if len(e.Text) > MaxText {
		e = &Error{Code: e.Code, Text: e.Text[:MaxText]}
	}
	return &Message{ID: m.ID, Kind: m.Kind, Error: e}
}

// Encode returns m as one packet.
func (m *Message) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m.clean())
	if err != nil {
		return nil, fmt.Errorf("ipc: %s message: %w", m.Kind, err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("ipc: %s message of %d bytes exceeds %d: split it in pages", m.Kind, len(b), MaxMessage)
	}
	return b, nil
}

// clean returns m with question marks for what is not UTF-8, such as names that peers chose: JSON would make three bytes of each of these, past what the
// reader allows.
func (m *Message) clean() *Message {
	c := *m
	for _, f := range []*string{&c.Node, &c.Name, &c.Peer, &c.Service, &c.Scheduler, &c.Code, &c.Text, &c.What} {
		*f = strings.ToValidUTF8(*f, "?")
	}
	if e := m.Error; e != nil {
		c.Error = &Error{Code: strings.ToValidUTF8(e.Code, "?"), Text: strings.ToValidUTF8(e.Text, "?")}
	}
	return &c
}

// Decode reads one packet and checks the bounds of its fields. It accepts unknown kinds: the receiver answers them (Kind.Request).
func Decode(b []byte) (*Message, error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("ipc: message of %d bytes exceeds %d", len(b), MaxMessage)
	}
	m := new(Message)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("ipc: message is not valid JSON: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// check bounds every field whose size a peer chooses.
func (m *Message) check() error {
	for _, f := range [...]struct {
		name string
		n    int
		max  int
	}{
		{"kind", len(m.Kind), MaxName}, {"node", len(m.Node), MaxName}, {"name", len(m.Name), MaxName}, {"peer", len(m.Peer), MaxName},
		{"service", len(m.Service), MaxName}, {"scheduler", len(m.Scheduler), MaxName}, {"what", len(m.What), MaxName},
		{"code", len(m.Code), MaxName}, {"data", len(m.Data), MaxData}, {"text", len(m.Text), MaxText},
	} {
		if f.n > f.max {
			return fmt.Errorf("ipc: field %s has %d bytes; at most %d are allowed", f.name, f.n, f.max)
		}
	}
	if m.Kind == "" {
		return fmt.Errorf("ipc: message without a kind")
	}
	if m.Timeout < 0 || m.Count < 0 || m.Page < 0 || m.Depth < 0 || m.Window < 0 {
		return fmt.Errorf("ipc: %s message with a negative number", m.Kind)
	}
	if m.Error != nil && (len(m.Error.Code) > MaxName || len(m.Error.Text) > MaxText) {
		return fmt.Errorf("ipc: error of a %s message is too long", m.Kind)
	}
	return nil
}
