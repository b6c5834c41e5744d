package fabric

import (
	"math/bits"

	"multiedge/internal/mono"
)

// event is something that happens.
type event struct {
	at   mono.Time
	kind kind
	what int32
}

// kind says what happens, and what event.what is the number of.
type kind uint8

const (
	departs kind = iota // a port has sent the packet at the head of its queue
	arrives             // the packet at the head of a port's cable is at the far end
	wakes               // the timer of a host is due
	expires             // the timer of a stream of the model is due
	calls               // a function is to be called
)

// agenda is the events to come: a radix heap (Ahuja and others, 1990), which is several times as fast as a binary one
// where time only goes on. Bucket b has the events whose time differs from now in bit b-1, and in none above. Of the
// events at one time the first that was added comes first, so that a seed is a run: those at one time are always in one
// bucket, in their order.
type agenda struct {
	now     mono.Time // of the latest event that was taken; none is added before
	buckets [65][]event
	some    [2]uint64 // bit b: bucket b is not empty, but for bucket 0
	taken   int       // of bucket 0
}

func (a *agenda) add(at mono.Time, k kind, what int32) {
	a.put(event{max(at, a.now), k, what})
}

func (a *agenda) put(e event) {
	b := bits.Len64(uint64(e.at ^ a.now))
	a.buckets[b] = append(a.buckets[b], e)
	a.some[b>>6] |= 1 << (b & 63)
}

// take removes the next event, if there is one not later than a time.
func (a *agenda) take(until mono.Time) (event, bool) {
	if a.taken == len(a.buckets[0]) && !a.advance(until) {
		return event{}, false
	}
	e := a.buckets[0][a.taken]
	if e.at > until {
		return event{}, false
	}
	a.taken++
	return e, true
}

// advance goes on to the time of the next event, if that is not later than until.
func (a *agenda) advance(until mono.Time) bool {
	a.buckets[0], a.taken = a.buckets[0][:0], 0
	b := bits.TrailingZeros64(a.some[0] &^ 1)
	if b == 64 {
		if a.some[1] == 0 {
			return false
		}
		b = 64
	}
	from := a.buckets[b]
	next := from[0].at
	for i := range from {
		next = min(next, from[i].at)
	}
	if next > until {
		return false
	}
	a.now = next
	a.some[b>>6] &^= 1 << (b & 63)
	a.buckets[b] = from[:0]
	for _, e := range from { // all go to lower buckets
		a.put(e)
	}
	return true
}
