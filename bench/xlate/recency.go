package xlate

// recency is a fully associative cache that evicts the least recently used: a list in that order, and where each key is
// in it.
type recency struct {
	at    map[owned]int32
	items []recent
	size  int
	head  int32 // the most recently used
	tail  int32
}

type recent struct {
	key        owned
	prev, next int32 // -1: none
}

func newRecency(size int) *recency {
	return &recency{at: make(map[owned]int32, size), size: size, head: -1, tail: -1}
}

// use reports whether k is in the cache, and puts it there.
func (r *recency) use(k owned) bool {
	i, hit := r.at[k]
	switch {
	case hit:
		r.unlink(i)
	case len(r.items) < r.size:
		i = int32(len(r.items))
		r.items = append(r.items, recent{})
	default:
		i = r.tail
		r.unlink(i)
		delete(r.at, r.items[i].key)
	}
	r.items[i] = recent{key: k, prev: -1, next: r.head}
	if r.head >= 0 {
		r.items[r.head].prev = i
	}
	r.head = i
	if r.tail < 0 {
		r.tail = i
	}
	r.at[k] = i
	return hit
}

func (r *recency) unlink(i int32) {
	e := &r.items[i]
	if e.prev >= 0 {
		r.items[e.prev].next = e.next
	} else {
		r.head = e.next
	}
	if e.next >= 0 {
		r.items[e.next].prev = e.prev
	} else {
		r.tail = e.prev
	}
}
