package ipc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Every packet begins with a header (A3.1):
//
//	0 size u32, of the packet | 4 kind u16 | 6 flags u16 | 8 id u64
const (
	headerSize = 16
	flagReply  = 1 << 0
	flagFailed = 1 << 1 // of a reply: what follows is the reason
)

// Message is one control packet: a request (ID not zero), its reply (same ID and Kind) or an event (ID zero).
// Which fields matter depends on Kind; the others are zero and not sent.
type Message struct {
	ID     uint64
	Kind   Kind
	Answer bool   // a reply
	Error  *Error // of a reply: the request failed

	Greeting // hello; dial, accept, incoming: Node

	Name string // hello: of the program, or the node; export, advert: of the memory; trace: of a link

	Conn    uint32
	Queue   uint32 // receive queue
	Peer    string
	Service string
	Data    []byte
	Asked   // dial, accept, incoming, export

	Timeout time.Duration // zero: the daemon's own

	Region  uint32
	Key     uint64
	Off     uint64
	Size    uint64 // bytes: of a region, an export, an advert
	Perm    uint8  // regmem.Perm
	Number  uint32 // advert: of the export, by which it is withdrawn; a peer chose it: any is allowed
	Brought        // register
	Space   Space  // map
	Advice  Advice // advise
	Usage   Usage  // usage

	Code  Code // ended, closed: why
	Text  string
	What  string
	Count int // ping
	Page  int
	More  bool // further pages follow
	Body  json.RawMessage
}

// Asked is more of a connection that is asked for, or memory.
type Asked struct {
	Ordered   bool   // dial
	Overlap   bool   // dial: of Ordered
	Scheduler string // dial
	Caller    uint32 // incoming: 1 + the user who dials, of the same daemon, 0: a peer does
	Shared           // dial, accept, export
}

// Brought says what comes along as a descriptor: memory that the client made, or all memory of its process, of which it
// registers what is at Addr.
type Brought struct {
	Own, Heap bool
	Addr      uint64
}

// Shared says which domain of the client a connection belongs to or memory is exported to; 0: none. Peers name the
// memory by addresses from Base on, and High is the upper half of its key.
type Shared struct {
	Domain, High uint32
	Base         uint64
}

// loose is what a message with a JSON body may say (A4.3).
type loose struct {
	Name    string          `json:"name,omitempty"`
	Peer    string          `json:"peer,omitempty"`
	Timeout time.Duration   `json:"timeout,omitempty"` // nanoseconds
	Size    uint64          `json:"size,omitempty"`
	What    string          `json:"what,omitempty"`
	Count   int             `json:"count,omitempty"`
	Page    int             `json:"page,omitempty"`
	More    bool            `json:"more,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// Error is why a request failed. Text says what to do about it.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Text
}

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Reply returns the successful answer to m, without fields; Fail the unsuccessful one.
func (m *Message) Reply() *Message { return &Message{ID: m.ID, Kind: m.Kind, Answer: true} }

// Fail returns the answer to m that reports err, whose Code is CodeInternal unless it is an *Error.
func (m *Message) Fail(err error) *Message {
	e, ok := err.(*Error)
	if !ok {
		e = &Error{Code: CodeInternal, Text: err.Error()}
	}
	if len(e.Text) > MaxText {
		e = &Error{Code: e.Code, Text: strings.ToValidUTF8(e.Text[:MaxText], "")}
	}
	r := m.Reply()
	r.Error = e
	return r
}

// Encode returns m as one packet.
func (m *Message) Encode() ([]byte, error) {
	fm, isJSON := m.form()
	b := make([]byte, max(fm.size, headerSize))
	if isJSON {
		var err error
		if b, err = m.appendLoose(b); err != nil {
			return nil, fmt.Errorf("ipc: %s message: %w", m.Kind, err)
		}
	} else {
		f := body{b: b, writing: true}
		if fm.fields(&f, m); f.err != nil {
			return nil, fmt.Errorf("ipc: %s message: %w", m.Kind, f.err)
		}
		for len(b) > headerSize && b[len(b)-1] == 0 { // zeros at the end are not sent (A3.5)
			b = b[:len(b)-1]
		}
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("ipc: %s message of %d bytes exceeds %d: split it in pages", m.Kind, len(b), MaxMessage)
	}
	var flags uint16
	if m.Answer {
		flags |= flagReply
	}
	if m.Error != nil {
		flags |= flagReply | flagFailed
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint16(b[4:], uint16(m.Kind))
	binary.LittleEndian.PutUint16(b[6:], flags)
	binary.LittleEndian.PutUint64(b[8:], m.ID)
	return b, nil
}

// form returns how the rest of m is sent.
func (m *Message) form() (fm form, isJSON bool) {
	if m.Error != nil {
		return failure, false
	}
	k, ok := formats[m.Kind]
	if !ok {
		return bare, false
	}
	fm = k.first
	if m.Answer {
		fm = k.reply
	}
	return fm, fm.fields == nil
}

func (m *Message) appendLoose(b []byte) ([]byte, error) {
	l := loose{m.Name, m.Peer, m.Timeout, m.Size, m.What, m.Count, m.Page, m.More, m.Body}
	if err := l.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(&l)
	if err != nil {
		return nil, err
	}
	return append(b, text...), nil
}

func (l *loose) check() error {
	if max(len(l.Name), len(l.Peer), len(l.What)) > MaxName {
		return Errorf(CodeInvalid, "a name has at most %d bytes", MaxName)
	}
	if l.Timeout < 0 || l.Count < 0 || l.Page < 0 {
		return Errorf(CodeInvalid, "timeout, count and page are not negative")
	}
	return nil
}

// errHeader is what ends a control connection: after such a packet nothing is known of what follows.
var errHeader = errors.New("ipc: packet without a proper header")

// Decode reads one packet and checks the bounds of its fields. Of unknown kinds there is the header only: the receiver
// answers them, or ignores events. An error that is an *Error is about the fields, and comes with a message of what is
// in the header, so that it can be answered; with any other error there is no message.
func Decode(b []byte) (*Message, error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("ipc: message of %d bytes exceeds %d", len(b), MaxMessage)
	}
	if len(b) > 0 && b[0] == '{' && (len(b) < headerSize || binary.LittleEndian.Uint32(b) != uint32(len(b))) {
		return nil, ErrJSON
	}
	if len(b) < headerSize || binary.LittleEndian.Uint32(b) != uint32(len(b)) {
		return nil, errHeader
	}
	flags := binary.LittleEndian.Uint16(b[6:])
	head := Message{ID: binary.LittleEndian.Uint64(b[8:]), Kind: Kind(binary.LittleEndian.Uint16(b[4:])),
		Answer: flags&flagReply != 0}
	m := head
	if head.Answer && flags&flagFailed != 0 {
		m.Error = new(Error)
	}
	fm, isJSON := m.form()
	var err error
	if isJSON {
		err = m.readLoose(b[headerSize:])
	} else {
		f := body{b: b} // of a longer one the rest is not known here (A3.4)
		if len(b) < fm.size {
			f.b = append(make([]byte, 0, fm.size), b...)[:fm.size]
		}
		if fm.fields(&f, &m); f.err != nil {
			err = f.err
		}
	}
	if err != nil {
		return &head, err
	}
	return &m, nil
}

// readLoose reads a JSON body; there may be none.
func (m *Message) readLoose(b []byte) error {
	var l loose
	if len(b) > 0 {
		if err := json.Unmarshal(b, &l); err != nil {
			return Errorf(CodeInvalid, "the body of a %s message is not valid JSON: %.200s", m.Kind, err.Error())
		}
	}
	if err := l.check(); err != nil {
		return err
	}
	m.Name, m.Peer, m.Timeout, m.Size, m.What = l.Name, l.Peer, l.Timeout, l.Size, l.What
	m.Count, m.Page, m.More, m.Body = l.Count, l.Page, l.More, l.Body
	return nil
}
