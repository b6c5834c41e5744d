// Package copies has buffers, used again and again, for copies of operations' bytes: of those to be sent, and of those
// that came too early.
package copies

import "math/bits"

// Classes of buffers: the shortest has 64 bytes, the longest Most, and four of them double the length, so that a buffer
// has 64 bytes, or is at most a quarter longer than what it holds.
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
func Size(n int) int { return sizeOf(classOf(n)) }

func sizeOf(class int) int { return (4 + class%4) * (least / 4) << (class / 4) }

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

// Put takes a buffer back. Where that is more than Room, the class that has most bytes leaves some to the collector, so
// that free buffers come to have the lengths in use.
func (g *Pool) Put(b []byte) {
	b = b[:cap(b)]
	for g.bytes+len(b) > Room {
		g.drop()
	}
	c := classOf(len(b))
	g.free[c] = append(g.free[c], b)
	g.bytes += len(b)
}

// drop leaves a buffer of the class that has most bytes to the collector.
func (g *Pool) drop() {
	most, bytes := 0, 0
	for c := range g.free {
		if n := len(g.free[c]) * sizeOf(c); n > bytes {
			most, bytes = c, n
		}
	}
	last := len(g.free[most]) - 1
	g.free[most][last] = nil
	g.free[most] = g.free[most][:last]
	g.bytes -= sizeOf(most)
}
