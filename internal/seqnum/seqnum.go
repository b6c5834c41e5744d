// Package seqnum provides serial-number arithmetic (RFC 1982) for the 32-bit operation sequence of a connection.
//
// Operation numbers wrap; two of them may be compared only while they are less than 2^31 apart, which the
// operation window (PROTOCOL clause 7.2) guarantees.
package seqnum

// Value is one operation number. It is ordered by Before, never by <.
type Value uint32

// Before reports whether v precedes w in serial order.
func (v Value) Before(w Value) bool { return int32(v-w) < 0 }

// AtMost reports whether v precedes or equals w in serial order.
func (v Value) AtMost(w Value) bool { return int32(v-w) <= 0 }

// Add returns v advanced by n, wrapping.
func (v Value) Add(n int) Value { return v + Value(n) }

// Distance returns w-v as a signed count: how many steps lead from v to w.
func (v Value) Distance(w Value) int { return int(int32(w - v)) }

// InWindow reports whether v lies in [first, first+size).
func (v Value) InWindow(first Value, size int) bool { return uint32(v-first) < uint32(size) }
