package faults

import (
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"multiedge/internal/wire"
	"multiedge/linkdrv"
)

// Kinds of injectors. All send from a host's own interface, so that no switch stands in the way of a forged address.
const (
	injectBlind     = "blind"     // well-formed frames by one who has heard nothing: sessions, numbers and keys are guesses
	injectHello     = "hello"     // announcements of nodes that do not exist
	injectInit      = "init"      // requests for sessions by nodes that do not exist
	injectMalformed = "malformed" // noise, truncated frames, frames with wrong lengths
	injectReplay    = "replay"    // captured frames again, as they were or from other addresses
	injectForge     = "forge"     // captured frames on another path, with other numbers or bytes, and checksums made right
)

// injector makes frames of one kind.
type injector struct {
	job      *Job
	rng      *rand.Rand
	src      []byte
	captured [][]byte
	scratch  []byte
}

func runInject(ctx context.Context, w *worker) error {
	drv, err := linkdrv.Open(w.job.Link, linkdrv.Options{Kind: w.job.Driver})
	if err != nil {
		return err
	}
	defer drv.Close()
	in := &injector{job: &w.job, rng: rand.New(rand.NewPCG(w.job.Seed, 11)), src: drv.Info().MAC, scratch: make([]byte, 0, 16<<10)}
	if w.job.File != "" {
		if in.captured, err = readFrames(w.job.File); err != nil {
			return err
		}
	}
	if (w.job.Kind == injectReplay || w.job.Kind == injectForge) && len(in.captured) == 0 {
		return errors.New("nothing was captured to send again")
	}
	w.emit(Event{Started: true})
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	r := Result{}
	go func() {
		defer close(done)
		in.run(ctx, drv, &r)
	}()
	w.wait(ctx, func(o Order) {
		if o.Do == DoDrain {
			cancel()
			<-done
			w.emit(Event{Result: &r})
		}
	})
	cancel()
	<-done
	return nil
}

// run sends batch after batch until ctx ends or the count is reached.
func (in *injector) run(ctx context.Context, drv linkdrv.Driver, r *Result) {
	batch := 32
	if in.job.Driver == linkdrv.KindUDP {
		batch = 1 // the kernel counts what it drops by the datagram
	}
	start := time.Now()
	frames := make([]linkdrv.TxFrame, 0, batch)
	for ctx.Err() == nil && (in.job.Count == 0 || int(r.Done) < in.job.Count) {
		frames = frames[:0]
		for range batch {
			frames = append(frames, linkdrv.TxFrame{Head: append([]byte(nil), in.make()...), Joined: in.job.Driver == linkdrv.KindUDP})
		}
		for rest := frames; len(rest) > 0 && ctx.Err() == nil; {
			n, err := drv.Send(rest)
			if err != nil && n == 0 {
				time.Sleep(time.Millisecond) // the interface is down
				continue
			}
			r.Done += uint64(n)
			rest = rest[n:]
		}
	}
	r.Seconds = time.Since(start).Seconds()
}

func (in *injector) make() []byte {
	switch in.job.Kind {
	case injectHello:
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

// setup announces a node that does not exist, or asks for a session in its name.
func (in *injector) setup(kind wire.Type) []byte {
	h := wire.Hello{Epoch: in.rng.Uint64() | 1, Flags: wire.HelloAnswer, Link: uint8(in.rng.IntN(64)), RxSlots: 256, MTU: 9000, Name: fmt.Appendf(nil, "x%x", in.rng.Uint32())}
	binary.BigEndian.PutUint64(h.Node[:], in.rng.Uint64()|1)
	tail := h.AppendTo(nil)
	if kind == wire.TypeInit {
		tail = (&wire.Init{Hello: h, Session: in.rng.Uint32() | 1}).AppendTo(nil)
	}
	return in.body(in.ethernet(in.stranger()), wire.Header{Type: kind}, tail)
}

// blind is a frame with all that cannot be known made up.
func (in *injector) blind() []byte {
	src := in.src
	if in.rng.IntN(2) == 0 {
		src = in.stranger()
	}
	h := wire.Header{Type: wire.TypeData, Path: uint8(in.rng.IntN(4)), Session: in.rng.Uint32() | 1, PN: in.rng.Uint64() >> in.rng.IntN(64)}
	switch in.rng.IntN(4) {
	case 0:
		h.Type, h.Session, h.PN = wire.TypeReset, 0, 0
		return in.body(in.ethernet(src), h, (&wire.Reset{Session: in.rng.Uint32() | 1, Epoch: in.rng.Uint64() | 1}).AppendTo(nil))
	case 1:
		return in.body(in.ethernet(src), h, []byte{byte(wire.KindPing), 0, 0, 0})
	}
	h.Flags = wire.FlagBulk
	b := in.ethernet(src)
	at := len(b)
	b = append(b, make([]byte, wire.FixedLen+wire.BulkLen)...)
	wire.PutBulk(b[at+wire.FixedLen:], &wire.Bulk{Kind: wire.KindWrite, Len: 64, Conn: in.rng.Uint32N(8), Op: in.rng.Uint32(), Key: in.rng.Uint64(), Place: in.rng.Uint64()})
	wire.Finish(b[at:], &h, nil)
	return append(b, make([]byte, 64)...)
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
	binary.BigEndian.PutUint64(b[wire.EthLen+8:], pn+1+in.rng.Uint64N(1<<(10+in.rng.IntN(24)))) // the transfer has gone on meanwhile
	if n := len(b); n > wire.HeadLen && in.rng.IntN(2) == 0 {
		b[wire.HeadLen+in.rng.IntN(n-wire.HeadLen)] ^= 0x55
	}
	resum(b)
	return b
}

// resum makes the checksums of a plaintext frame right. Of a sealed one they are not to be had: the bytes go as they are.
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

// writeFrames and readFrames keep captured frames.
func writeFrames(file string, frames [][]byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(frames), f.Close())
}

func readFrames(file string) (frames [][]byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = gob.NewDecoder(f).Decode(&frames)
	return frames, err
}
