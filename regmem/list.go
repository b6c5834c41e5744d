package regmem

// link is an element of a circular list of grants, or its head (g is nil). Grants are on two lists, their region's and their owner's,
// so that ending either costs as much as it has grants, not as many as there are.
type link struct {
	g          *grant
	prev, next *link
}

// push appends l to the list headed by h; a zero h is an empty list.
func (h *link) push(l *link) {
	if h.next == nil {
		h.prev, h.next = h, h
	}
	l.prev, l.next = h.prev, h
	h.prev.next, h.prev = l, l
}

// unlink takes l out of its list.
func (l *link) unlink() {
	l.prev.next, l.next.prev = l.next, l.prev
	l.prev, l.next = nil, nil
}

// first returns the oldest grant of the list headed by h, or nil.
func (h *link) first() *grant {
	if h.next == nil {
		return nil
	}
	return h.next.g // the head's g is nil
}
