// Package copies has buffers for copies of operations' bytes, which are used again.
package copies

import "math/bits"

// Classes of buffers: the shortest has 64 bytes, the longest Most.
const (
	Most       = 64 << 10
	Room       = 4 << 20 // bytes that are free, at most
	LeastClass = 6
	Classes    = 17 - LeastClass
)

// Pool is the free buffers of copies, by class: a buffer of class i has 64<<i bytes.
type Pool struct {
	free  [Classes][][]byte
	bytes int // of free
}

// ClassOf is the class of the shortest buffer that holds n bytes.
func ClassOf(n int) int { return max(bits.Len(uint(n-1)), LeastClass) - LeastClass }

// Take returns a buffer for n bytes, 1 to Most.
func (g *Pool) Take(n int) []byte {
	c := ClassOf(n)
	if k := len(g.free[c]); k > 0 {
		b := g.free[c][k-1]
		g.free[c] = g.free[c][:k-1]
		g.bytes -= len(b)
		return b[:n]
	}
	return make([]byte, 1<<(c+LeastClass))[:n]
}

// Put takes a buffer back. What is more than Room is left to the collector.
func (g *Pool) Put(b []byte) {
	b = b[:cap(b)]
	if g.bytes+len(b) <= Room {
		c := ClassOf(len(b))
		g.free[c] = append(g.free[c], b)
		g.bytes += len(b)
	}
}
