package faults

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"

	"multiedge/bench/pattern"
)

// guard is what lies at each end of a region and is not exported; gap lies between slots, exported but never written.
const (
	guard = 4096
	gap   = 64
)

// slot is a range of a region that one mover has to itself.
type slot struct{ off, size int }

// Mixes of operations.
const (
	MixRandom = "random" // sizes of 1 byte to 1 MiB at any offset, writes, reads, notifications, fences
	MixBulk   = "bulk"   // writes of 256 KiB
	MixSmall  = "small"  // writes of up to 64 bytes, all with notifications
	MixReads  = "reads"  // of 256 KiB, four of five reads, the others writes
	MixFences = "fences" // many writes and reads at once on the same bytes, ordered by fences: fences.go
	// messages into buffers of the connection, or of a queue that all such connections share: talker.go, mailbox.go
	MixMessages = "messages"
	MixShared   = "shared"
)

// slotSizes are what a mix divides a region into, repeated until every mover has one.
var slotSizes = map[string][]int{
	MixRandom: {1 << 20, 64 << 10, 4 << 10, 256, 64 << 10, 4 << 10, 256, 64},
	MixBulk:   {256 << 10},
	MixSmall:  {64},
	MixReads:  {256 << 10},
	MixFences: {fenceArea},

	MixMessages: {longestMessage},
	MixShared:   {longestMessage},
}

// divide lays the slots of a number of movers out and returns the size of the region.
func divide(mix string, movers int) (slots []slot, size int, err error) {
	sizes := slotSizes[mix]
	if len(sizes) == 0 {
		return nil, 0, fmt.Errorf("faults: mix %q is unknown", mix)
	}
	at := guard + gap
	for i := range movers {
		slots = append(slots, slot{at, sizes[i%len(sizes)]})
		at += sizes[i%len(sizes)] + gap
	}
	return slots, at + guard, nil
}

// background is what all of a region holds at first.
func background(src *pattern.Source, region []byte) { src.Fill(region, 0) }

// oracle is what a client knows of memory that it alone writes. Movers change disjoint slots of it without a lock.
type oracle struct {
	src   *pattern.Source
	bytes []byte
}

func newOracle(seed uint64, size int) *oracle {
	o := &oracle{src: pattern.New(seed), bytes: make([]byte, size)}
	background(o.src, o.bytes)
	return o
}

// Claim is what memory must hold and what must have been notified when a connection's life is over.
type Claim struct {
	ID     string
	Bytes  []byte         // of the whole region
	Slots  [][2]int       // offset and length of what may be written
	Maybe  []Maybe        // what operations that failed may have written
	Notes  map[uint32]int // notifications that must have come, with their lengths
	Doubts map[uint32]int // notifications that may have come

	Sent, Arrived uint32 // messages; of them, those that must have come
}

// Maybe is a range of which any byte may hold what a failed operation carried.
type Maybe struct {
	Off   int
	Bytes []byte
}

// writeFile and readFile keep what one process hands to another: claims, and captured frames.
func writeFile(file string, v any) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(v), f.Close())
}

func readFile(file string, v any) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := gob.NewDecoder(f).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// maxDetails bounds what is said of one region; everything is counted.
const maxDetails = 4

// compare holds memory against the claim.
func (c *Claim) compare(got []byte) Checked {
	out := Checked{ID: c.ID, Bytes: len(got)}
	if len(got) != len(c.Bytes) {
		out.Wrong = max(len(got), len(c.Bytes))
		out.say("region of %d bytes, the claim has %d", len(got), len(c.Bytes))
		return out
	}
	if string(got) == string(c.Bytes) {
		return out
	}
	allowed := map[int]byte{}
	for _, m := range c.Maybe {
		for i, b := range m.Bytes {
			allowed[m.Off+i] = b
		}
	}
	for i := range got {
		if got[i] == c.Bytes[i] {
			continue
		}
		if b, ok := allowed[i]; ok && got[i] == b {
			continue
		}
		if out.Wrong++; out.Wrong == 1 {
			out.say("first wrong byte at %d: %#02x, want %#02x", i, got[i], c.Bytes[i])
		}
		if !c.writable(i) {
			out.Canary++
		}
	}
	return out
}

func (c *Claim) writable(i int) bool {
	for _, s := range c.Slots {
		if i >= s[0] && i < s[0]+s[1] {
			return true
		}
	}
	return false
}

// notes compares notifications, by number with how often they came and their length, with the claim. Where the daemon
// of the memory's owner crashed, it may have taken notifications with it that its owner was not given yet, of writes
// whose completion had left.
func (c *Claim) notes(out *Checked, got map[uint32]note, crashed bool) {
	for imm, n := range c.Notes {
		if g := got[imm]; g.times == 0 && crashed {
			out.Crashed++
		} else if g.times != 1 || g.length != n {
			out.Notes++
			out.say("notification %d of %d bytes came %d times, of %d bytes", imm, n, g.times, g.length)
		}
	}
	for imm, g := range got {
		if _, sure := c.Notes[imm]; sure {
			continue
		}
		if n, doubt := c.Doubts[imm]; !doubt || g.times != 1 || g.length != n {
			out.Notes++
			out.say("notification %d was never sent, or came %d times", imm, g.times)
		}
	}
}

// note is how often a notification came and how long its write was.
type note struct{ times, length int }

func (c *Checked) say(format string, args ...any) {
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, fmt.Sprintf(format, args...))
	}
}

// intact reports whether local memory, laid out like the region, holds in [from, to) what the oracle does.
func (o *oracle) intact(local []byte, from, to int) bool {
	return string(local[from:to]) == string(o.bytes[from:to])
}
