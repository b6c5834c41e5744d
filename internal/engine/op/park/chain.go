package park

// A parked part is in three chains, so that nobody has to go through what others have parked.
const (
	ofPage = iota // Table.waits
	ofBack        // Table.backs
	ofConn        // of its connection
	chains
)

// Chain is parked parts that have something in common, in order of arrival.
type Chain[T any] struct{ first, last *Part[T] }

// First is the oldest part; nil: there is none.
func (c *Chain[T]) First() *Part[T] { return c.first }

func (c *Chain[T]) push(m *Part[T], k int) {
	at := &m.in[k]
	if at.next, at.prev = nil, c.last; c.last == nil {
		c.first = m
	} else {
		c.last.in[k].next = m
	}
	c.last = m
}

func (c *Chain[T]) remove(m *Part[T], k int) {
	at := &m.in[k]
	if at.prev == nil {
		c.first = at.next
	} else {
		at.prev.in[k].next = at.next
	}
	if at.next == nil {
		c.last = at.prev
	} else {
		at.next.in[k].prev = at.prev
	}
	at.next, at.prev = nil, nil
}

func pushTo[K comparable, T any](of map[K]Chain[T], key K, m *Part[T], k int) {
	c := of[key]
	c.push(m, k)
	of[key] = c
}

func removeFrom[K comparable, T any](of map[K]Chain[T], key K, m *Part[T], k int) {
	c := of[key]
	if c.remove(m, k); c.first == nil {
		delete(of, key)
	} else {
		of[key] = c
	}
}
