package faults

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"multiedge/internal/wire"
)

// newInjector returns one that has captured a plaintext frame of Data.
func newInjector(kind string, seed uint64) *injector {
	in := &injector{job: &Job{Kind: kind, Target: []byte{2, 0, 0, 0, 0, 9}, Peer: "host1", Node: make([]byte, 16)},
		rng: rand.New(rand.NewPCG(seed, 1)), src: []byte{2, 0, 0, 0, 0, 1}, scratch: make([]byte, 0, 16<<10)}
	b := in.ethernet(in.src)
	at := len(b)
	b = append(b, make([]byte, wire.FixedLen+wire.BulkLen)...)
	wire.PutBulk(b[at+wire.FixedLen:], &wire.Bulk{Kind: wire.KindWrite, Len: 64, Conn: 1, Op: 1, Key: 2})
	wire.Finish(b[at:], &wire.Header{Type: wire.TypeData, Flags: wire.FlagBulk, Session: 7, PN: 100}, nil)
	in.captured = [][]byte{append(bytes.Clone(b), make([]byte, 64)...)}
	in.sort()
	return in
}

// Each injector makes the frames that it is named after: those that must be well formed are, so that a daemon refuses
// them for the one reason that they were made for; and the same seed makes the same frames.
func TestInjectorsMakeWhatTheyShould(t *testing.T) {
	const frames = 400
	for kind, want := range map[string][]wire.Type{
		injectBlind: {wire.TypeData, wire.TypeReset}, injectHello: {wire.TypeHello}, injectClaim: {wire.TypeHello},
		injectInit: {wire.TypeInit}, injectReplay: {wire.TypeData}, injectForge: {wire.TypeData},
	} {
		in, again := newInjector(kind, 5), newInjector(kind, 5)
		var seen []wire.Type
		same := 0
		for range frames {
			b := in.make()
			if !bytes.Equal(b, again.make()) {
				t.Fatalf("%s: the same seed made another frame", kind)
			}
			if !bytes.Equal(b[:6], in.job.Target) {
				t.Fatalf("%s: a frame for %x", kind, b[:6])
			}
			var f wire.Frame
			if err := f.Decode(b[wire.EthLen:]); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			seen = append(seen, f.Type)
			if bytes.Equal(b[wire.EthLen:], in.captured[0][wire.EthLen:]) {
				same++
			}
		}
		slices.Sort(seen)
		slices.Sort(want)
		if seen = slices.Compact(seen); !slices.Equal(seen, want) {
			t.Errorf("%s: frames of %v, want %v", kind, seen, want)
		}
		if (same == frames) != (kind == injectReplay) || kind == injectForge && same > 0 {
			t.Errorf("%s: %d of %d frames are as captured", kind, same, frames)
		}
	}
}

// Malformed frames mostly cannot be read, and none is empty.
func TestMalformedFramesAreMalformed(t *testing.T) {
	in, bad := newInjector(injectMalformed, 5), 0
	for range 400 {
		var f wire.Frame
		if b := in.make(); len(b) < wire.EthLen {
			t.Fatalf("a frame of %d bytes", len(b))
		} else if f.Decode(b[wire.EthLen:]) != nil {
			bad++
		}
	}
	if bad < 300 {
		t.Errorf("only %d of 400 frames are malformed", bad)
	}
}

// A frame of a real session with a seal made without the key keeps its clear header, and never the right seal.
func TestUnsealedFramesHaveAnotherSeal(t *testing.T) {
	in := newInjector(injectBlind, 5)
	sealed := bytes.Clone(in.captured[0])
	in.sealed = [][]byte{sealed}
	for range 200 {
		b := in.unsealed()
		if len(b) != len(sealed) || bytes.Equal(b[len(b)-16:], sealed[len(sealed)-16:]) {
			t.Fatal("the seal is that of the captured frame")
		}
		if !bytes.Equal(b[wire.EthLen:wire.EthLen+8], sealed[wire.EthLen:wire.EthLen+8]) {
			t.Fatal("the clear header changed")
		}
	}
}
