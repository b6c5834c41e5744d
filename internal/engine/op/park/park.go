// Package park has what waits for memory that is not resident (PROTOCOL clause 16), and when that is tried again. It
// knows no operations: its owner says what is parked, and two functions of his try it again or give it up.
package park

import (
	"slices"
	"time"

	"multiedge/internal/mono"
	"multiedge/regmem"
)

const (
	Time  = time.Second            // how long an operation waits for memory (clause 16.4)
	tick  = 100 * time.Millisecond // how often parked parts are looked at: pages may have to be asked for again
	looks = 2048                   // parts that are looked at in one go, at most
	tries = 256                    // parts that are tried again in one go, at most, since their page has come
	turns = 10                     // and as many times that while pages of the same memory come
	rest  = 256                    // parked parts, with their buffers, that are kept for reuse
)

// Part is something that is parked; T is what it is.
type Part[T any] struct {
	What  T
	Wait  regmem.Wait // no Back: for room, until the next look
	Since mono.Time
	Heap  *regmem.Heap // what couriers carry for it; nil: nothing
	Use   regmem.Use   // with Heap, of what is to be fetched

	index int // in Table.all
	with  *Chain[T]
	in    [chains]struct{ next, prev *Part[T] }
}

// back is the memory that a part waits for, or for room for a trip to it; nil: for room here.
func (m *Part[T]) back() regmem.Backing {
	if m.Heap != nil {
		return m.Heap
	}
	return m.Wait.Back
}

// Table is all that is parked at an endpoint.
type Table[T any] struct {
	again   func(now mono.Time, m *Part[T])
	giveUp  func(now mono.Time, m *Part[T])
	waits   map[regmem.Wait]Chain[T]
	backs   map[regmem.Backing]Chain[T] // by the memory that they wait for
	all     []*Part[T]
	lookAt  mono.Time        // when they are looked at
	looked  int              // at so many of them, in this tick
	asking  []regmem.Backing // of AskAgain
	came    []arrived        // for which more wait than were tried again
	looking []*Part[T]       // scratch
	spare   []*Part[T]
}

// arrived is a page for which so many are to be tried again still.
type arrived struct {
	regmem.Wait
	left int
}

// Init makes an empty table. again tries a part again: it takes it out, and parks it anew if it misses again. giveUp
// takes a part out whose memory did not come in time, and ends its operation.
func (t *Table[T]) Init(again, giveUp func(now mono.Time, m *Part[T])) {
	*t = Table[T]{again: again, giveUp: giveUp, waits: map[regmem.Wait]Chain[T]{},
		backs: map[regmem.Backing]Chain[T]{}}
}

// Len is how many parts are parked.
func (t *Table[T]) Len() int { return len(t.all) }

// New returns a part to be parked, whose What may have memory of an earlier one.
func (t *Table[T]) New(now mono.Time) *Part[T] {
	m := &Part[T]{}
	if n := len(t.spare); n > 0 {
		m, t.spare = t.spare[n-1], t.spare[:n-1]
	}
	m.Since = now
	return m
}

// Keep keeps a part that is over for reuse: of it What alone.
func (t *Table[T]) Keep(m *Part[T]) {
	if len(t.spare) < rest {
		*m = Part[T]{What: m.What}
		t.spare = append(t.spare, m)
	}
}

// Park parks a part of the connection whose parts are those of with.
func (t *Table[T]) Park(now mono.Time, m *Part[T], wait regmem.Wait, with *Chain[T]) {
	m.Wait, m.with, m.index = wait, with, len(t.all)
	with.push(m, ofConn)
	if t.all = append(t.all, m); m.index == 0 {
		t.lookAt, t.looked = now.Add(tick), 0
	}
	if wait.Back != nil {
		pushTo(t.waits, wait, m, ofPage)
	}
	if b := m.back(); b != nil {
		pushTo(t.backs, b, m, ofBack)
	}
}

// Take takes a part out.
func (t *Table[T]) Take(m *Part[T]) {
	last := len(t.all) - 1
	t.all[m.index] = t.all[last]
	t.all[m.index].index = m.index
	t.all[last] = nil
	t.all = t.all[:last]
	m.with.remove(m, ofConn)
	if m.Wait.Back != nil {
		removeFrom(t.waits, m.Wait, m, ofPage)
	}
	if b := m.back(); b != nil {
		removeFrom(t.backs, b, m, ofBack)
	}
}

// Has reports whether m is parked.
func (t *Table[T]) Has(m *Part[T]) bool { return m.index < len(t.all) && t.all[m.index] == m }

// First returns the part that waits for a page longest; nil: none does.
func (t *Table[T]) First(w regmem.Wait) *Part[T] { return t.waits[w].first }

// Resident says that a page which Backing.Touch named has come, or that it is time to ask again. What waits for it is
// tried again, in order; where that is much, some of it later.
func (t *Table[T]) Resident(now mono.Time, w regmem.Wait) {
	n := 0
	for m := t.First(w); m != nil; m = m.in[ofPage].next {
		n++
	}
	t.arrived(now, arrived{w, n})
}

func (t *Table[T]) arrived(now mono.Time, p arrived) {
	n := min(p.left, tries)
	if t.Again(now, p.Wait, n); p.left > n && t.First(p.Wait) != nil {
		t.came = append(t.came, arrived{p.Wait, p.left - n})
	}
}

// Again tries again the first n of those that wait for a page.
func (t *Table[T]) Again(now mono.Time, w regmem.Wait, n int) {
	for ; n > 0; n-- { // one that misses again waits behind the others
		m := t.First(w)
		if m == nil {
			return // it went with its connection
		}
		t.again(now, m)
	}
}

// Gone reports that memory was unregistered. What waits for it, or for room to be carried there, is tried again, and
// meets what there is in its place. What waits for the same room is not: a user may give up one grant after the other.
func (t *Table[T]) Gone(now mono.Time, b regmem.Backing) {
	var all []*Part[T]
	for m := t.backs[b].first; m != nil; m = m.in[ofBack].next {
		all = append(all, m)
	}
	for _, m := range all {
		if t.Has(m) && m.back() == b { // else it went with another
			t.again(now, m)
		}
	}
}

// AskAgain has pages of b be asked for again soon, those first that are waited for longest: some were forgotten, and
// there may be room.
func (t *Table[T]) AskAgain(b regmem.Backing) {
	if t.backs[b].first != nil && !slices.Contains(t.asking, b) {
		t.asking = append(t.asking, b)
	}
}

// Timeout is when parked parts are looked at next.
func (t *Table[T]) Timeout() mono.Time {
	switch {
	case len(t.all) == 0:
		return mono.Never
	case len(t.asking)+len(t.came) > 0:
		return 0
	}
	return t.lookAt
}

// Check asks again for the pages of what is parked, and gives up what has waited for too long. In each tick it looks at
// everything, a part at a time.
func (t *Table[T]) Check(now mono.Time) {
	if len(t.came) > 0 {
		p := t.came[0]
		t.came = slices.Delete(t.came, 0, 1)
		t.arrived(now, p)
	}
	some, asked := t.looking[:0], 0
	for ; asked < len(t.asking) && len(some) < looks; asked++ {
		most := len(some) + looks
		for m := t.backs[t.asking[asked]].first; m != nil && len(some) < most; m = m.in[ofBack].next {
			some = append(some, m)
		}
	}
	if t.asking = slices.Delete(t.asking, 0, asked); now >= t.lookAt {
		if t.looked >= len(t.all) {
			t.looked = 0
		}
		part := t.all[t.looked:min(t.looked+looks, len(t.all))]
		some, t.looked = append(some, part...), t.looked+len(part)
		t.lookAt = now.Add(tick * time.Duration(len(part)) / time.Duration(max(len(t.all), 1)))
	}
	for _, m := range some {
		switch {
		case !t.Has(m):
		case m.Wait.Back == nil:
			t.again(now, m)
		case !t.comes(now, m):
			t.giveUp(now, m)
		}
	}
	clear(some)
	t.looking = some[:0]
}

// comes asks for the page of one again, or tries it again if the page is there. It reports false if it has waited for
// too long: while pages of the same memory come at all it may wait for its turn.
func (t *Table[T]) comes(now mono.Time, m *Part[T]) bool {
	if wait := m.Wait; m.Heap != nil && wait.Back == m.Heap.Room() {
		if t.FetchMore(now, m.Heap); m.Wait != wait {
			return true
		}
	}
	resident, busy := m.Wait.Back.Ask(m.Wait.Page)
	waited := now.Sub(m.Since)
	if resident && waited < turns*Time {
		t.again(now, m)
		return true
	}
	return waited < Limit(now, m.Wait.Back, busy)
}

// Limit is how long something may wait for memory: ten times as long where others of the same get theirs.
func Limit(now mono.Time, back regmem.Backing, busy bool) time.Duration {
	if h, ok := back.(*regmem.Heap); ok {
		busy = h.Idle(time.Duration(now)) < Time
	}
	if busy {
		return turns * Time
	}
	return Time
}

// Fetch has a courier fetch what a part that is to be sent needs, and returns what the part waits for. Parts that wait
// for room take turns.
func (t *Table[T]) Fetch(m *Part[T]) regmem.Wait {
	room := regmem.Wait{Back: m.Heap.Room(), Page: regmem.RoomToFetch}
	if t.First(room) == nil {
		if trip := m.Heap.Fetch(m.Use); trip != nil {
			return regmem.Wait{Back: m.Heap, Page: trip.Number}
		}
	}
	return room
}

// FetchMore has fetched what waits for room, as far as there is some.
func (t *Table[T]) FetchMore(now mono.Time, h *regmem.Heap) {
	room := regmem.Wait{Back: h.Room(), Page: regmem.RoomToFetch}
	for m := t.First(room); m != nil; m = t.First(room) {
		trip := m.Heap.Fetch(m.Use)
		if trip == nil {
			return
		}
		t.Take(m)
		t.Park(now, m, regmem.Wait{Back: m.Heap, Page: trip.Number}, m.with)
	}
}
