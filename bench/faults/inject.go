package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/linkdrv"
)

// Kinds of injectors. All send from a host's own interface, so that no switch stands in the way of a forged address.
const (
	// well-formed frames: sessions, numbers and keys are guesses; or true sessions, and sealed with what no key made
	injectBlind = "blind"
	injectHello = "hello" // announcements of nodes that do not exist
	injectClaim = "claim" // announcements of the node in the job, from addresses and links that are not its own
	// requests for sessions, by nodes that do not exist and in the name of the one that does, that lack a good cookie
	// alone
	injectInit      = "init"
	injectMalformed = "malformed" // noise, truncated frames, frames with wrong lengths
	injectReplay    = "replay"    // captured frames again, as they were or from other addresses
	// captured frames on another path, with other numbers or bytes, and checksums made right
	injectForge = "forge"
)

// injector makes frames of one kind.
type injector struct {
	job      *Job
	rng      *rand.Rand
	src      []byte
	captured [][]byte
	sealed   [][]byte     // of them, sealed Data frames
	hellos   []wire.Hello // that the captured Hello and Init say
	scratch  []byte
}

func runInject(ctx context.Context, w *worker) error {
	drv, err := linkdrv.Open(w.job.Link, linkdrv.Options{Kind: w.job.Driver, Promiscuous: w.job.Kind == injectInit})
	if err != nil {
		return err
	}
	defer drv.Close()
	in := &injector{job: &w.job, rng: rand.New(rand.NewPCG(w.job.Seed, 11)), src: drv.Info().MAC,
		scratch: make([]byte, 0, 16<<10)}
	if w.job.File != "" {
		if err := readFile(w.job.File, &in.captured); err != nil {
			return err
		}
		in.sort()
	}
	if (w.job.Kind == injectReplay || w.job.Kind == injectForge) && len(in.captured) == 0 {
		return errors.New("nothing was captured to send again")
	}
	w.emit(Event{Started: true})
	r := Result{Types: map[string]uint64{}}
	aim := func(Order) {}
	stop := func() { aim(Order{}); aim = func(Order) {} }
	w.wait(ctx, func(o Order) {
		switch o.Do {
		case DoAim: // what was under way ends first
			stop()
			aim = in.loose(ctx, drv, o, &r)
			w.emit(Event{Aimed: o.Name})
		case DoDrain:
			stop()
			w.emit(Event{Result: &r})
		}
	})
	stop()
	return nil
}

// loose sends in the background as an order says, and returns what ends it.
func (in *injector) loose(ctx context.Context, drv linkdrv.Driver, o Order, r *Result) func(Order) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if in.job.Kind == injectHandshakes {
			in.handshakes(ctx, drv, o, r)
			return
		}
		in.run(ctx, drv, o, r)
	}()
	return func(Order) { cancel(); <-done }
}

// Aims of an injector. Frames for nobody cost this machine what the others cost it, but for what the attacked daemon
// does with them: its address and size are the same, its EtherType is not.
const (
	aimDaemon = "daemon"
	aimNobody = "nobody"
)

const etherTypeOfNobody = 0x88B6 // IEEE 802 Local Experimental 2

// run sends batch after batch, Rate frames a second or as many as go, until ctx ends. Those for the daemon are counted.
func (in *injector) run(ctx context.Context, drv linkdrv.Driver, o Order, r *Result) {
	batch := 32
	if in.job.Driver == linkdrv.KindUDP {
		batch = 1 // the kernel counts what it drops by the datagram
	}
	start, sent := time.Now(), uint64(0)
	frames := make([]linkdrv.TxFrame, 0, batch)
	for ctx.Err() == nil {
		frames = frames[:0]
		for range batch {
			head := append([]byte(nil), in.make()...)
			if o.Name == aimNobody {
				binary.BigEndian.PutUint16(head[12:], etherTypeOfNobody)
			}
			frames = append(frames, linkdrv.TxFrame{Head: head, Joined: in.job.Driver == linkdrv.KindUDP &&
				o.Name == aimDaemon})
		}
		for rest := frames; len(rest) > 0 && ctx.Err() == nil; {
			n, err := drv.Send(rest)
			if err != nil && n == 0 {
				time.Sleep(time.Millisecond) // the interface is down
				continue
			}
			sent += uint64(n)
			rest = rest[n:]
		}
		if in.job.Kind == injectInit {
			in.listen(drv, r)
		}
		if o.Rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(sent) * time.Second / time.Duration(o.Rate))))
		}
	}
	if o.Name == aimDaemon {
		r.Done += sent
		if o.Rate == 0 {
			r.Seconds, r.Fastest = r.Seconds+time.Since(start).Seconds(), r.Fastest+sent
		}
	}
}

// listen counts what is answered to requests in the name of strangers: at their addresses, which are nobody's.
func (in *injector) listen(drv linkdrv.Driver, r *Result) {
	var rx [linkdrv.RecvBatch][]byte
	for range 8 {
		n, err := drv.Recv(rx[:])
		if n == 0 || err != nil {
			return
		}
		for _, b := range rx[:n] {
			var f wire.Frame
			if len(b) < wire.EthLen+wire.FixedLen || b[0]&3 != 2 || bytes.Equal(b[:6], in.src) ||
				f.Peek(b[wire.EthLen:]) != nil {
				continue
			}
			switch f.Type {
			case wire.TypeRetry:
				r.Types[askedAgain]++
			case wire.TypeInitAck, wire.TypeCrypto:
				r.Types[taken]++
			}
		}
	}
}

// What is answered to a request for a session.
const (
	askedAgain = "asked for a cookie"
	taken      = "taken without one"
)

// sort picks from what was captured what frames are made of.
func (in *injector) sort() {
	for _, b := range in.captured {
		var f wire.Frame
		if len(b) < wire.EthLen+wire.FixedLen || f.Peek(b[wire.EthLen:]) != nil {
			continue
		}
		switch {
		case f.Type == wire.TypeData && f.KeyEpoch != 0:
			in.sealed = append(in.sealed, b)
		case f.Type == wire.TypeHello || f.Type == wire.TypeInit:
			in.hellos = append(in.hellos, helloOf(f.Type, b)...)
		}
	}
}

// helloOf is what a captured Hello or Init says of its sender.
func helloOf(kind wire.Type, frame []byte) []wire.Hello {
	var f wire.Frame
	if f.Decode(frame[wire.EthLen:]) != nil {
		return nil
	}
	var in wire.Init
	if kind == wire.TypeInit && in.Decode(f.Tail) == nil || kind == wire.TypeHello && in.Hello.Decode(f.Tail) == nil {
		return []wire.Hello{in.Hello}
	}
	return nil
}

func (in *injector) make() []byte {
	switch in.job.Kind {
	case injectHello, injectClaim:
		return in.setup(wire.TypeHello)
	case injectInit:
		return in.setup(wire.TypeInit)
	case injectMalformed:
		return in.malformed()
	case injectReplay:
		return in.replay()
	case injectForge:
		return in.forge()
	}
	return in.blind()
}

// ethernet starts a frame to the target from an address.
func (in *injector) ethernet(src []byte) []byte {
	b := append(append(in.scratch[:0], in.job.Target...), src...)
	return binary.BigEndian.AppendUint16(b, uint16(linkdrv.EtherType))
}

// stranger is a locally administered address of nobody.
func (in *injector) stranger() []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], in.rng.Uint64())
	b[0] = b[0]&^1 | 2
	return b[:6]
}

// body finishes a frame without bulk.
func (in *injector) body(b []byte, h wire.Header, tail []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, wire.FixedLen)...)
	wire.Finish(b[at:], &h, tail)
	return append(b, tail...)
}

// setup announces a node that does not exist, or asks for a session in its name or that of a node that does: all is as
// it should be but for the cookie, which is missing or made up.
func (in *injector) setup(kind wire.Type) []byte {
	h := wire.Hello{Epoch: in.rng.Uint64() | 1, Flags: wire.HelloAnswer | wire.HelloSecure,
		Link: uint8(in.rng.IntN(64)), RxSlots: 256, MTU: 9000, Name: fmt.Appendf(nil, "x%x", in.rng.Uint32())}
	binary.BigEndian.PutUint64(h.Node[:], in.rng.Uint64()|1)
	if in.job.Kind == injectClaim {
		h.Name = []byte(in.job.Peer)
		if in.rng.IntN(2) == 0 { // else its name alone
			copy(h.Node[:], in.job.Node)
		}
	}
	if kind == wire.TypeHello {
		return in.body(in.ethernet(in.stranger()), wire.Header{Type: kind}, h.AppendTo(nil))
	}
	if len(in.hellos) > 0 && in.rng.IntN(2) == 0 {
		epoch := h.Epoch
		h = in.hellos[in.rng.IntN(len(in.hellos))]
		if in.rng.IntN(2) == 0 {
			h.Epoch = epoch
		}
	}
	ask := wire.Init{Hello: h, Session: in.rng.Uint32() | 1}
	if in.rng.IntN(2) == 0 {
		ask.Cookie = make([]byte, wire.CookieLen)
		binary.BigEndian.PutUint64(ask.Cookie, in.rng.Uint64())
	}
	return in.body(in.ethernet(in.stranger()), wire.Header{Type: kind}, ask.AppendTo(nil))
}

// blind is a frame with all that cannot be known made up; where sealed frames were captured, every second one is of a
// true session.
func (in *injector) blind() []byte {
	if len(in.sealed) > 0 && in.rng.IntN(2) == 0 {
		return in.unsealed()
	}
	src := in.src
	if in.rng.IntN(2) == 0 {
		src = in.stranger()
	}
	h := wire.Header{Type: wire.TypeData, Path: uint8(in.rng.IntN(4)), Session: in.rng.Uint32() | 1,
		PN: in.rng.Uint64() >> in.rng.IntN(64)}
	switch in.rng.IntN(4) {
	case 0:
		h.Type, h.Session, h.PN = wire.TypeReset, 0, 0
		return in.body(in.ethernet(src), h, (&wire.Reset{Session: in.rng.Uint32() | 1,
			Epoch: in.rng.Uint64() | 1}).AppendTo(nil))
	case 1:
		return in.body(in.ethernet(src), h, []byte{byte(wire.KindPing), 0, 0, 0})
	}
	h.Flags = wire.FlagBulk
	b := in.ethernet(src)
	at := len(b)
	b = append(b, make([]byte, wire.FixedLen+wire.BulkLen)...)
	wire.PutBulk(b[at+wire.FixedLen:], &wire.Bulk{Kind: wire.KindWrite, Len: 64, Conn: in.rng.Uint32N(8),
		Op: in.rng.Uint32(), Key: in.rng.Uint64(), Place: in.rng.Uint64()})
	wire.Finish(b[at:], &h, nil)
	return append(b, make([]byte, 64)...)
}

// unsealed is a frame of a session that there is, whose clear header is in order and whose seal no key made: with a
// packet number that was used, or one that is to come, with bytes that were sealed and another tag, or with nothing but
// noise.
func (in *injector) unsealed() []byte {
	b := append(in.scratch[:0], in.sealed[in.rng.IntN(len(in.sealed))]...)
	copy(b, in.job.Target)
	clear := wire.EthLen + secure.ClearLen
	if in.rng.IntN(4) > 0 {
		pn := binary.BigEndian.Uint64(b[wire.EthLen+8:])
		binary.BigEndian.PutUint64(b[wire.EthLen+8:], pn+1+in.rng.Uint64N(1<<(10+in.rng.IntN(20))))
	}
	from := len(b) - secure.Overhead // the tag
	if in.rng.IntN(2) == 0 {
		from = min(clear+2, from) // after the length of the first part, where there is one
	}
	for i := from; i < len(b); i++ {
		b[i] = byte(in.rng.Uint32())
	}
	return b
}

// malformed is noise, or a frame cut short, or one whose lengths lie.
func (in *injector) malformed() []byte {
	b := in.blind()
	switch in.rng.IntN(3) {
	case 0:
		return b[:linkdrv.HeaderLen+in.rng.IntN(len(b)-linkdrv.HeaderLen)]
	case 1:
		for range 1 + in.rng.IntN(8) {
			b[linkdrv.HeaderLen+in.rng.IntN(len(b)-linkdrv.HeaderLen)] = byte(in.rng.Uint32())
		}
		return b
	}
	b = b[:linkdrv.HeaderLen]
	for range 16 + in.rng.IntN(1400) {
		b = append(b, byte(in.rng.Uint32()))
	}
	return b
}

// replay sends what was captured: as it was, or from another address.
func (in *injector) replay() []byte {
	b := append(in.scratch[:0], in.captured[in.rng.IntN(len(in.captured))]...)
	copy(b, in.job.Target)
	if in.rng.IntN(4) == 0 {
		copy(b[6:12], in.stranger())
	}
	return b
}

// forge changes what was captured as one would who wants to be heard: another path, another packet number, other bytes.
func (in *injector) forge() []byte {
	b := append(in.scratch[:0], in.captured[in.rng.IntN(len(in.captured))]...)
	copy(b, in.job.Target)
	if in.rng.IntN(4) == 0 {
		b[wire.EthLen+2] ^= 1
		resum(b)
		return b
	}
	pn := binary.BigEndian.Uint64(b[wire.EthLen+8:])
	// the transfer has gone on meanwhile
	binary.BigEndian.PutUint64(b[wire.EthLen+8:], pn+1+in.rng.Uint64N(1<<(10+in.rng.IntN(24))))
	if n := len(b); n > wire.HeadLen && in.rng.IntN(2) == 0 {
		b[wire.HeadLen+in.rng.IntN(n-wire.HeadLen)] ^= 0x55
	}
	resum(b)
	return b
}

// resum makes the checksums of a plaintext frame right. Of a sealed one they are not to be had: the bytes go as they
// are.
func resum(b []byte) {
	var f wire.Frame
	body := b[wire.EthLen:]
	if err := f.Decode(body); err != nil && !errors.Is(err, wire.ErrHeadSum) {
		return
	}
	end := wire.FixedLen
	if f.Flags&wire.FlagBulk != 0 {
		if f.Flags&wire.FlagPayloadSum != 0 {
			f.Bulk.Sum = wire.Sum(0, f.Payload)
		}
		wire.PutBulk(body[wire.FixedLen:], &f.Bulk)
		end += wire.BulkLen
	}
	wire.Finish(body[:end], &f.Header, f.Tail)
}
