package faults

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"

	"multiedge/bench/pattern"
)

// guard is the size of the memory at each end of a region that is not exported. gap is the size of the memory between
// slots that is exported but never written.
const (
	guard = 4096
	gap   = 64
)

// slot is a range of a region that only one mover uses.
type slot struct{ off, size int }

// Mixes of operations.
const (
	MixRandom = "random" // sizes of 1 byte to 1 MiB at any offset, writes, reads, notifications, fences
	MixBulk   = "bulk"   // writes of 256 KiB
	MixWrites = "writes" // of 64 KiB
	MixSmall  = "small"  // writes of up to 64 bytes, all with notifications
	MixReads  = "reads"  // of 256 KiB, four of five reads, the others writes
	MixFences = "fences" // many writes and reads at once on the same bytes, ordered by fences: fences.go
	// messages into buffers of the connection, or of a queue that all such connections share: mailbox.go
	MixMessages = "messages"
	MixShared   = "shared"
)

// slotSizes are what a mix divides a region into, repeated until every mover has one.
var slotSizes = map[string][]int{
	MixRandom: {1 << 20, 64 << 10, 4 << 10, 256, 64 << 10, 4 << 10, 256, 64},
	MixBulk:   {256 << 10},
	MixWrites: {64 << 10},
	MixSmall:  {64},
	MixReads:  {256 << 10},
	MixFences: {fenceArea},

	MixMessages: {longestMessage},
	MixShared:   {longestMessage},
}

// divide places the slots of so many movers and returns the size of the region.
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

// background fills a region with its initial content.
func background(src *pattern.Source, region []byte) { src.Fill(region, 0) }

// oracle is a client's knowledge of memory that only it writes. Movers change disjoint slots of it without a lock.
type oracle struct {
	src   *pattern.Source
	bytes []byte
}

func newOracle(seed uint64, size int) *oracle {
	o := &oracle{src: pattern.New(seed), bytes: make([]byte, size)}
	background(o.src, o.bytes)
	return o
}

// Claim says what memory must hold, and which notifications must have come, when a connection is over.
type Claim struct {
	ID     string
	Bytes  []byte         // of the whole region
	Slots  [][2]int       // offset and length of what may be written
	Maybe  []Maybe        // what operations that failed may have written
	Notes  map[uint32]int // notifications that must have come, with their lengths
	Doubts map[uint32]int // notifications that may have come

	Sent, Arrived uint32 // messages sent, and those of them that must have come
}

// Maybe is a range each byte of which may hold the bytes of a failed operation.
type Maybe struct {
	Off   int
	Bytes []byte
}

// writeFile and readFile pass data from one process to another: claims and captured frames.
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

// maxDetails bounds the messages about one region. All errors are counted.
const maxDetails = 4

// compare compares memory with the claim.
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

// notes compares notifications with the claim: the number of each, how often it came, and its length. If the daemon of
// the memory's owner crashed, notifications that it had not delivered are lost with it, although their writes had
// completed.
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

// note records how often a notification came, and the length of its write.
type note struct{ times, length int }

func (c *Checked) say(format string, args ...any) {
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, fmt.Sprintf(format, args...))
	}
}

// intact reports whether local memory, laid out like the region, equals the oracle in [from, to).
func (o *oracle) intact(local []byte, from, to int) bool {
	return string(local[from:to]) == string(o.bytes[from:to])
}
