package eager

import (
	"reflect"
	"slices"

	"multiedge/internal/engine/op/copies"
	"multiedge/internal/wire"
)

// draftCost is what a draft takes besides its bytes, and blockCost what each block does.
const (
	draftCost = 384
	blockCost = 4
)

// Price is what a draft of a message of so many bytes is charged: its memory has the length of its class.
func Price(size uint64) int { return price(copies.ClassOf(int(size))) }

func price(class int) int { return draftCost + 1<<class*(Block+blockCost) }

// Draft is a message that a peer composes. Of each block the one with the greatest stamp counts, whatever order they
// come in.
type Draft struct {
	// Commit is the segment that makes it an operation, without its Data; of kind Pad: it has not come.
	Commit wire.Segment
	number uint32
	bytes  []byte
	stamps []uint32 // of each block; 0: nothing came
	sum    uint64   // of stamps
	need   uint64   // the sum that is to be reached, if Commit has come
}

// Size is the length of the message as it is composed, in bytes.
func (d *Draft) Size() uint64 { return uint64(len(d.bytes)) }

// Put keeps the blocks of a Stage that are newer than those there.
func (d *Draft) Put(g *wire.Segment) {
	for data, at := g.Data, g.Place; len(data) > 0; {
		n := min(len(data), Block)
		if s := &d.stamps[at/Block]; g.Stamp > *s {
			copy(d.bytes[at:], data[:n])
			d.sum += uint64(g.Stamp - *s)
			*s = g.Stamp
		}
		data, at = data[n:], at+uint64(n)
	}
}

// SetCommit takes the message's Commit; the first one counts.
func (d *Draft) SetCommit(g *wire.Segment) {
	if d.Commit.Kind == wire.KindPad {
		d.Commit, d.need = *g, g.Word(0)
		d.Commit.Data, d.Commit.Name = nil, nil
	}
}

// Whole reports whether the Commit and the newest of every block have come.
func (d *Draft) Whole() bool { return d.Commit.Kind != wire.KindPad && d.sum == d.need }

// Bytes returns what was committed of a draft that is Whole. It reports false if a block never came, which the peer
// counted wrongly then.
func (d *Draft) Bytes() ([]byte, bool) {
	n := d.Commit.Bytes
	return d.bytes[:n], !slices.Contains(d.stamps[:blocks(uint64(n))], 0)
}

// Drafts are the messages that the peer of a connection composes.
type Drafts struct {
	list []*Draft
	gone numbers // applied, dropped or refused
}

// Gone reports whether the message of that number is over.
func (x *Drafts) Gone(number uint32) bool { return x.gone.has(number) }

// Fits reports whether a peer that counts right can use that number.
func (x *Drafts) Fits(number uint32) bool { return x.gone.fits(number) }

// Find returns the draft of that number; nil: there is none.
func (x *Drafts) Find(number uint32) *Draft {
	for _, d := range x.list {
		if d.number == number {
			return d
		}
	}
	return nil
}

// Add adds a draft.
func (x *Drafts) Add(d *Draft) { x.list = append(x.list, d) }

// Drop forgets the draft of that number, which it returns if there is one, and whatever comes of it from now on.
func (x *Drafts) Drop(number uint32) *Draft {
	x.gone.add(number)
	for i, d := range x.list {
		if d.number == number {
			last := len(x.list) - 1
			x.list[i], x.list[last] = x.list[last], nil
			x.list = x.list[:last]
			return d
		}
	}
	return nil
}

// Clear forgets all drafts, and returns them.
func (x *Drafts) Clear() []*Draft {
	all := x.list
	x.list = nil
	return all
}

// Draft returns an empty draft of a message of so many bytes. What its bytes are is never shown: Bytes wants a stamp of
// every block.
func (p *Pool[O]) Draft(number uint32, size uint64) *Draft {
	class := copies.ClassOf(int(size))
	d := &Draft{}
	if n := len(p.drafts[class]); n > 0 {
		d, p.drafts[class] = p.drafts[class][n-1], p.drafts[class][:n-1]
		p.bytes -= price(class)
	} else {
		d.bytes, d.stamps = make([]byte, Block<<class), make([]uint32, 1<<class)
	}
	d.number, d.bytes, d.stamps = number, d.bytes[:size], zeros(d.stamps, blocks(size))
	return d
}

// KeepDraft takes back a draft that is over.
func (p *Pool[O]) KeepDraft(d *Draft) {
	if n := Price(d.Size()); p.bytes+n <= MostIdleDrafts {
		class := copies.ClassOf(len(d.bytes))
		*d = Draft{bytes: d.bytes, stamps: d.stamps}
		p.drafts[class] = append(p.drafts[class], d)
		p.bytes += n
	}
}

// takes is the memory of a draft, with its place in a list.
func (d *Draft) takes() int {
	return int(reflect.TypeFor[Draft]().Size()) + 2*8 + cap(d.bytes) + 4*cap(d.stamps)
}

// Memory is what the drafts take, in bytes.
func (x *Drafts) Memory() (n int) {
	for _, d := range x.list {
		n += d.takes()
	}
	return n
}

// Memory is what the drafts that are kept for reuse take, in bytes.
func (p *Pool[O]) Memory() (n int) {
	for _, class := range p.drafts {
		for _, d := range class {
			n += d.takes()
		}
	}
	return n
}
