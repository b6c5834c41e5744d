// Package copies has buffers for copies of operations' bytes, those to be sent and those that came too early, which are
// used again.
package copies

import "math/bits"

// Classes of buffers: the shortest has 64 bytes, the longest Most, and four of them double the length, so that a buffer
// is at most a quarter longer than what it holds.
const (
	Most    = 64 << 10
	Room    = 4 << 20 // bytes that are free, at most
	least   = 64
	classes = 4*10 + 1
)

// Pool is the free buffers of copies, by class.
type Pool struct {
	free  [classes][][]byte
	bytes int // of free
}

// classOf is the class of the shortest buffer that holds n bytes.
func classOf(n int) int {
	last := max(n, least) - 1
	shift := bits.Len(uint(last)) - 3 // the three highest bits of last are 4 to 7
	return max(0, 4*(shift-4)+last>>shift-3)
}

// Size is the length of the buffer that Take returns for n bytes.
func Size(n int) int {
	c := classOf(n)
	return (4 + c%4) * (least / 4) << (c / 4)
}

// Take returns a buffer for n bytes, 1 to Most.
func (g *Pool) Take(n int) []byte {
	c := classOf(n)
	if k := len(g.free[c]); k > 0 {
		b := g.free[c][k-1]
		g.free[c] = g.free[c][:k-1]
		g.bytes -= len(b)
		return b[:n]
	}
	return make([]byte, Size(n))[:n]
}

// Put takes a buffer back. What is more than Room is left to the collector.
func (g *Pool) Put(b []byte) {
	b = b[:cap(b)]
	if g.bytes+len(b) <= Room {
		c := classOf(len(b))
		g.free[c] = append(g.free[c], b)
		g.bytes += len(b)
	}
}
