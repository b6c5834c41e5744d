package flowctl

import "time"

// Block is one acknowledgement block: what the receiver of a path has, as of one moment. A later block of the same path
// says all that an earlier one said, so blocks may be lost, repeated and reordered, and may travel on any path.
//
// Bit i of Bits[w] speaks of number Floor+64w+i, up to Largest. Numbers below Floor all arrived if Bits is empty or bit
// 0 is clear; if bit 0 is set the bitmap did not reach further back, and the block says nothing about them
// (Tracker.AckBits).
type Block struct {
	Path    uint8
	Largest uint64        // largest number that arrived
	Floor   uint64        // where Bits starts; at most Largest+1
	Delay   time.Duration // from the arrival of Largest until this block left
	Nack    bool          // a hole opened since the last block; without LossParams.Nacks loss is judged by time alone
	Bits    []uint64      // the owner's; Ledger.OnAck does not keep it
}

// silentBelow reports whether nothing is said about numbers below Floor.
func (b *Block) silentBelow() bool { return len(b.Bits) > 0 && b.Bits[0]&1 != 0 }

// word returns what the block says about [pn, pn+64), bit i for pn+i. Bits above Largest are not masked.
func (b *Block) word(pn uint64) uint64 {
	if pn >= b.Floor {
		d := pn - b.Floor
		w, s := d>>6, d&63
		return b.bitsAt(w)>>s | b.bitsAt(w+1)<<(64-s)
	}
	var below uint64
	if !b.silentBelow() {
		below = ^uint64(0)
	}
	d := b.Floor - pn // of 64 and more nothing is left of the bits
	return below&(1<<d-1) | b.bitsAt(0)<<d
}

func (b *Block) bitsAt(w uint64) uint64 {
	if w < uint64(len(b.Bits)) {
		return b.Bits[w]
	}
	return 0
}
