package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/linkdrv"
)

// Kinds of injectors. All send from a host's own interface, so that no switch drops a forged address.
const (
	// well-formed frames: with guessed sessions, numbers and keys, or of real sessions but sealed without the key
	injectBlind = "blind"
	injectHello = "hello" // announcements of nodes that do not exist
	injectClaim = "claim" // announcements of the node in the job, from addresses and links that are not its own
	// requests for sessions, in the names of nodes that do not exist and of the one that does; only a valid cookie is
	// missing
	injectInit      = "init"
	injectMalformed = "malformed" // noise, truncated frames, frames with wrong lengths
	injectReplay    = "replay"    // captured frames again, as they were or from other addresses
	// captured frames with another path, other numbers or other bytes, and with correct checksums
	injectForge = "forge"
)

// injector makes frames of one kind.
type injector struct {
	job      *Job
	rng      *rand.Rand
	src      []byte
	captured [][]byte
	sealed   [][]byte     // the sealed Data frames among captured
	hellos   []wire.Hello // in the captured Hello and Init frames
	scratch  []byte
}

func runInject(ctx context.Context, w *worker) {
	drv := kit.Get(linkdrv.Open(w.job.Link, linkdrv.Options{Kind: w.job.Driver, Promiscuous: w.job.Kind == injectInit}))
	defer drv.Close()
	in := &injector{job: &w.job, rng: rand.New(rand.NewPCG(w.job.Seed, 11)), src: drv.Info().MAC,
		scratch: make([]byte, 0, 16<<10)}
	if w.job.File != "" {
		kit.Check(readFile(w.job.File, &in.captured))
		in.sort()
	}
	if (w.job.Kind == injectReplay || w.job.Kind == injectForge) && len(in.captured) == 0 {
		kit.Fail("nothing was captured to send again")
	}
	w.emit(Event{Started: true})
	r := Result{Types: map[string]uint64{}}
	stop := func() {}
	defer func() { stop() }()
	w.serve(ctx, orders{
		"aim": on(func(a Aim) any {
			stop()
			stop = in.loose(ctx, drv, a, &r)
			return nil
		}),
		"drain": on(func(any) *Result {
			stop()
			return &r
		}),
	})
}

// loose starts to send in the background, and returns a function that stops it.
func (in *injector) loose(ctx context.Context, drv linkdrv.Driver, a Aim, r *Result) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if in.job.Kind == injectHandshakes {
			in.handshakes(ctx, drv, a, r)
			return
		}
		in.run(ctx, drv, a, r)
	}()
	return func() { cancel(); <-done }
}

// Aims of an injector. Frames for nobody have the same address and size as the others and only another EtherType. They
// cost this machine the same, except for the work of the attacked daemon.
const (
	aimDaemon = "daemon"
	aimNobody = "nobody"
)

const etherTypeOfNobody = 0x88B6 // IEEE 802 Local Experimental 2

// run sends batches, Rate frames a second or as many as possible, until ctx ends. It counts the frames for the daemon.
func (in *injector) run(ctx context.Context, drv linkdrv.Driver, a Aim, r *Result) {
	batch := 32
	if in.job.Driver == linkdrv.KindUDP {
		batch = 1 // the kernel counts dropped datagrams, not frames
	}
	start, sent := time.Now(), uint64(0)
	frames := make([]linkdrv.TxFrame, 0, batch)
	for ctx.Err() == nil {
		frames = frames[:0]
		for range batch {
			head := append([]byte(nil), in.make()...)
			if a.At == aimNobody {
				binary.BigEndian.PutUint16(head[12:], etherTypeOfNobody)
			}
			frames = append(frames, linkdrv.TxFrame{Head: head, Joined: in.job.Driver == linkdrv.KindUDP &&
				a.At == aimDaemon})
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
		if a.Rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(sent) * time.Second / time.Duration(a.Rate))))
		}
	}
	if a.At == aimDaemon {
		r.Done += sent
		if a.Rate == 0 {
			r.Seconds, r.Fastest = r.Seconds+time.Since(start).Seconds(), r.Fastest+sent
		}
	}
}

// listen counts the answers to requests in the names of strangers. The answers go to the strangers' addresses, which
// nobody owns.
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

// Answers to a request for a session.
const (
	askedAgain = "asked for a cookie"
	taken      = "taken without one"
)

// sort picks from the captured frames those that injected frames are made of.
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

// helloOf returns the Hello in a captured Hello or Init frame.
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

// ethernet starts a frame from an address to the target.
func (in *injector) ethernet(src []byte) []byte {
	b := append(append(in.scratch[:0], in.job.Target...), src...)
	return binary.BigEndian.AppendUint16(b, uint16(linkdrv.EtherType))
}

// stranger returns a locally administered address that nobody has.
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

// setup announces a node that does not exist, or requests a session in the name of a node that does or does not exist.
// Everything is correct except the cookie, which is missing or made up.
func (in *injector) setup(kind wire.Type) []byte {
	h := wire.Hello{Epoch: in.rng.Uint64() | 1, Flags: wire.HelloAnswer | wire.HelloSecure,
		Link: uint8(in.rng.IntN(64)), RxSlots: 256, MTU: 9000, Name: fmt.Appendf(nil, "x%x", in.rng.Uint32())}
	binary.BigEndian.PutUint64(h.Node[:], in.rng.Uint64()|1)
	if in.job.Kind == injectClaim {
		h.Name = []byte(in.job.Peer)
		if in.rng.IntN(2) == 0 { // otherwise only its name
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

// blind returns a frame in which everything that an outsider cannot know is made up. If sealed frames were captured,
// every second frame is of a real session.
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

// unsealed returns a frame of a real session with a correct clear header and a seal made without the key. Its packet
// number was used already or is still to come. Its body is either sealed bytes with another tag, or noise.
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
		from = min(clear+2, from) // after the length of the first part, if there is one
	}
	for i := from; i < len(b); i++ {
		b[i] = byte(in.rng.Uint32())
	}
	return b
}

// malformed returns noise, a truncated frame, or a frame with false lengths.
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

// replay returns a captured frame, as it was or from another address.
func (in *injector) replay() []byte {
	b := append(in.scratch[:0], in.captured[in.rng.IntN(len(in.captured))]...)
	copy(b, in.job.Target)
	if in.rng.IntN(4) == 0 {
		copy(b[6:12], in.stranger())
	}
	return b
}

// forge changes a captured frame as an attacker would who wants it accepted: another path, another packet number, other
// bytes.
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

// resum corrects the checksums of a plaintext frame. It cannot do so for a sealed frame, which stays as it is.
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

// captureMost bounds what is kept of a capture, in frames and bytes.
const (
	captureMost  = 4096
	captureBytes = 16 << 20
)

// capture keeps the first frames that reach a host's interface, set-up included.
type capture struct {
	drv    linkdrv.Driver
	stop   chan struct{}
	done   sync.WaitGroup
	frames [][]byte
	bytes  int
}

// capture begins to listen at the second host, which gets what the first one sends.
func (s *Scene) capture() *capture {
	c := &capture{stop: make(chan struct{})}
	o := linkdrv.Options{Kind: linkdrv.KindUDP, RingSlots: 512} // hears both forms
	kit.Check(s.cluster.Lab().Host(1).Do(func() (err error) {
		c.drv, err = linkdrv.Open(s.cluster.Lab().Host(1).LinkNames()[0], o)
		return err
	}))
	c.done.Go(c.run)
	return c
}

func (c *capture) run() {
	var rx [linkdrv.RecvBatch][]byte
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		n, err := c.drv.Recv(rx[:])
		if err != nil {
			return
		}
		for _, f := range rx[:n] {
			if len(c.frames) < captureMost && c.bytes < captureBytes {
				c.frames = append(c.frames, append([]byte(nil), f...))
				c.bytes += len(f)
			}
		}
		if n == 0 {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(c.drv.FD()), Events: unix.POLLIN}}, 20)
		}
	}
}

// save ends the capture and writes it to a file for an injector.
func (c *capture) save(dir string) (file string, n int, err error) {
	close(c.stop)
	c.done.Wait()
	file = filepath.Join(dir, "captured")
	return file, len(c.frames), errors.Join(c.drv.Close(), writeFile(file, c.frames))
}
