package trace

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"multiedge/internal/wire"
)

var typeNames = [...]string{
	wire.TypeData: "data", wire.TypeHello: "hello", wire.TypeInit: "init", wire.TypeInitAck: "init-ack",
	wire.TypeReset: "reset", wire.TypeRetry: "retry",
	wire.TypeCrypto: "crypto",
}

// Summary is what the clear part of a frame says.
type Summary struct {
	Type    string `json:"type"` // empty: no frame of the transport
	Session uint32 `json:"session"`
	Path    uint8  `json:"path"`
	PN      uint64 `json:"packet_number"`
	Sealed  bool   `json:"sealed"`
	Text    string `json:"text"` // the frame in a line
}

// Describe says what is in a frame of size bytes, of which frame is the first ones, from the Ethernet header on. The
// frame may be anything.
func Describe(frame []byte, size int) (s Summary) {
	if len(frame) < wire.EthLen {
		s.Text = fmt.Sprintf("%d bytes, too short for an Ethernet frame", size)
		return s
	}
	var d describer
	if [12]byte(frame) != [12]byte{} { // else of an IP link: its header names nobody
		d.add("%s > %s", mac(frame[6:]), mac(frame))
	}
	var f wire.Frame
	b := frame[wire.EthLen:]
	err := f.Peek(b)
	cut := err == wire.ErrShort && f.Type != 0 && len(frame) < size // the clear part is there
	if err != nil && !cut {
		d.add("type %#04x, not understood: %v", binary.BigEndian.Uint16(frame[12:]), err)
		s.Text = d.String()
		return s
	}
	s.Type = strconv.Itoa(int(f.Type))
	if int(f.Type) < len(typeNames) && typeNames[f.Type] != "" {
		s.Type = typeNames[f.Type]
	}
	s.Session, s.Path, s.PN, s.Sealed = f.Session, f.Path, f.PN, wire.Sealed(b)
	d.add("%s session %d path %d pn %d", s.Type, f.Session, f.Path, f.PN)
	switch {
	case cut:
		d.add("%d bytes, cut off", size)
	case s.Sealed:
		d.add("sealed, key epoch %d, %d bytes", f.KeyEpoch, size-wire.EthLen)
	case f.Type == wire.TypeData:
		d.data(&f, b, len(frame) == size)
	default:
		d.setup(&f, size)
	}
	s.Text = d.String()
	return s
}

type describer struct{ strings.Builder }

func (d *describer) add(format string, args ...any) {
	if d.Len() > 0 {
		d.WriteByte(' ')
	}
	fmt.Fprintf(d, format, args...)
}

func mac(b []byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

// data says what a data frame in plaintext carries; whole says that all of it is in b.
func (d *describer) data(f *wire.Frame, b []byte, whole bool) {
	if f.Flags&wire.FlagPush != 0 {
		d.add("push")
	}
	if f.Flags&wire.FlagBulk != 0 {
		h := &f.Bulk
		g := wire.Segment{Kind: h.Kind, Flags: h.Flags, Conn: h.Conn, Op: h.Op, Key: h.Key, Place: h.Place, Imm: h.Imm}
		d.operation(&g, int(h.Len))
		if f.Flags&wire.FlagShuffled != 0 {
			d.add("(shuffled by %d)", f.Shuffle)
		}
	}
	if whole {
		if err := f.Decode(b); err != nil {
			d.add("| %v", err)
			return
		}
		if !f.PayloadIntact() {
			d.add("| payload checksum mismatch")
		}
	}
	d.tail(f.Tail, int(f.TailLen)-len(f.Tail))
}

// mostSegments is how many segments of a frame are listed: one of small operations has hundreds.
const mostSegments = 16

// tail lists the segments of a tail, of which cut bytes are missing.
func (d *describer) tail(tail []byte, cut int) {
	var g wire.Segment
	for listed := 0; len(tail) > 0; listed++ {
		if listed == mostSegments {
			d.add("| %d bytes more", len(tail)+cut)
			return
		}
		rest, err := g.Next(tail)
		if err != nil && cut == 0 {
			d.add("| %v", err)
			return
		}
		if err != nil {
			break
		}
		tail = rest
		d.segment(&g)
	}
	if cut > 0 {
		d.add("| %d bytes more, cut off", len(tail)+cut)
	}
}

func (d *describer) operation(g *wire.Segment, n int) {
	name := "read-data"
	switch g.Kind {
	case wire.KindSend, wire.KindSendNext:
		d.add("| send conn %d op %d message %d at %d, %d bytes", g.Conn, g.Op, g.Key, g.Place, n)
		d.flags(g)
		return
	case wire.KindTell:
		d.add("| tell conn %d op %d message %d of %d bytes written", g.Conn, g.Op, g.Key, g.Size)
		d.flags(g)
		return
	case wire.KindWrite, wire.KindWriteNext:
		name = "write"
	}
	d.add("| %s conn %d op %d at %d, %d bytes", name, g.Conn, g.Op, g.Place, n)
	if g.Kind != wire.KindReadData {
		d.add("key %#x", g.Key)
	}
	d.flags(g)
}

func (d *describer) flags(g *wire.Segment) {
	for _, f := range [...]struct {
		bit  uint8
		name string
	}{{wire.SegFirst, "first"}, {wire.SegLast, "last"}, {wire.SegBackward, "backward-fence"},
		{wire.SegForward, "forward-fence"}, {wire.SegNotify, "notify"}, {wire.SegStrict, "strict"}} {
		if g.Flags&f.bit != 0 {
			d.add("%s", f.name)
		}
	}
}

// segment says what clause 3.4 lets one segment say.
func (d *describer) segment(g *wire.Segment) {
	switch g.Kind {
	case wire.KindPad:
		d.add("| pad %d", len(g.Data))
	case wire.KindWrite, wire.KindWriteNext, wire.KindReadData, wire.KindSend, wire.KindSendNext,
		wire.KindTell:
		d.operation(g, len(g.Data))
	case wire.KindReadRequest:
		d.add("| read conn %d op %d at %d, %d bytes key %#x", g.Conn, g.Op, g.Place, g.Size, g.Key)
		d.flags(g)
	case wire.KindAtomic:
		f, size := wire.UnpackAtomic(g.Size)
		d.add("| atomic %v conn %d op %d at %d, %d bytes key %#x", f, g.Conn, g.Op, g.Place, size, g.Key)
		d.flags(g)
	case wire.KindAtomicResult:
		d.add("| atomic-result conn %d op %d found %#x", g.Conn, g.Op, g.Word(0))
	case wire.KindStage:
		d.add("| stage conn %d message %d stamp %d at %d, %d bytes", g.Conn, g.Op, g.Stamp, g.Place, len(g.Data))
	case wire.KindCommit:
		d.add("| commit conn %d op %d message %d, %d bytes", g.Conn, g.Op, g.From, g.Bytes)
		d.flags(g)
	case wire.KindDiscard:
		d.add("| discard conn %d message %d", g.Conn, g.Op)
	case wire.KindUnstaged:
		d.add("| unstaged conn %d message %d", g.Conn, g.Op)
	case wire.KindOpAck:
		d.add("| op-ack conn %d below %d, up to %d may follow", g.Conn, g.Op, g.Limit)
	case wire.KindCredit:
		d.add("| credit conn %d messages below %d", g.Conn, g.Limit)
		if g.Flags&wire.CreditShared != 0 {
			d.add("shared")
		}
	case wire.KindWant:
		d.add("| want conn %d messages below %d", g.Conn, g.Key)
	case wire.KindOpNak:
		d.add("| op-nak conn %d op %d status %d", g.Conn, g.Op, g.Status)
	case wire.KindAck:
		d.add("| ack path %d below %d largest %d after %d ns", g.Path, g.Place, g.Size, g.Delay)
		if g.Flags&wire.AckNack != 0 {
			d.add("nack")
		}
	case wire.KindOpen:
		d.add("| open conn %d service %q", g.From, g.Name)
	case wire.KindAccept:
		d.add("| accept conn %d as %d", g.Conn, g.From)
	case wire.KindRefuse:
		d.add("| refuse conn %d status %d %q", g.Conn, g.Status, g.Data)
	case wire.KindClose:
		d.add("| close conn %d status %d", g.Conn, g.Status)
	case wire.KindAdvert:
		d.add("| advert conn %d number %d %q key %#x, %d bytes", g.Conn, g.Op, g.Name, g.Key, g.Size)
	case wire.KindWithdraw:
		d.add("| withdraw conn %d number %d key %#x", g.Conn, g.Op, g.Key)
	case wire.KindPing:
		d.add("| ping")
	case wire.KindProbe:
		d.add("| probe %#x", g.Place)
	case wire.KindEcho:
		d.add("| echo %#x", g.Place)
	case wire.KindKeys:
		d.add("| keys number %d", g.Op)
	case wire.KindLink:
		var l wire.LinkInfo
		if l.Decode(g.Data) == nil {
			d.add("| link %d mtu %d%s %s", l.Link, l.MTU, takes(l.Joins), l.Addr.String())
		}
	}
}

// takes says that a link takes frames in datagrams too.
func takes(joined bool) string {
	if joined {
		return " datagrams"
	}
	return ""
}

// setup says what the body of a set-up frame says, as far as it is there.
func (d *describer) setup(f *wire.Frame, size int) {
	switch f.Type {
	case wire.TypeHello:
		var h wire.Hello
		if h.Decode(f.Tail) == nil {
			d.hello(&h)
		}
	case wire.TypeInit, wire.TypeInitAck:
		var i wire.Init
		if i.Decode(f.Tail) == nil {
			d.hello(&i.Hello)
			d.add("session %d", i.Session)
		}
	case wire.TypeReset:
		var r wire.Reset
		if r.Decode(f.Tail) == nil {
			d.add("session %d epoch %x", r.Session, r.Epoch)
		}
	case wire.TypeCrypto:
		var c wire.Crypto
		if c.Decode(f.Tail) == nil {
			d.add("level %d at %d, %d bytes", c.Level, c.Offset, int(f.TailLen)-wire.CryptoLen)
		}
	}
	d.add("(%d bytes)", size)
}

func (d *describer) hello(h *wire.Hello) {
	d.add("from %q node %x epoch %x link %d mtu %d%s", h.Name, h.Node, h.Epoch, h.Link, h.MTU, takes(h.Joins))
}
