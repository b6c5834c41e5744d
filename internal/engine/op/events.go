package op

// eventRing is a growing ring: its length is bounded by operations in flight plus a few events per connection and path.
type eventRing struct {
	buf        []Event
	head, tail uint32
}

func (r *eventRing) push(ev Event) { *r.next() = ev }

// isShort reports whether events of a kind use a few fields only: those of frequent kinds. The others are zero in them,
// and in slots that are free.
func isShort(k EventKind) bool { return k == EvComplete || k == EvNotify }

// short adds an event of such a kind, which is filled in its place.
func (r *eventRing) short(k EventKind, id ConnID) *Event {
	ev := r.next()
	ev.Kind, ev.Status, ev.Local, ev.Conn, ev.Token, ev.Value, ev.Data = k, OK, false, id, 0, 0, nil
	return ev
}

// next returns the slot of a further event.
func (r *eventRing) next() *Event {
	if int(r.tail-r.head) == len(r.buf) {
		r.grow()
	}
	r.tail++
	return &r.buf[(r.tail-1)&uint32(len(r.buf)-1)]
}

func (r *eventRing) grow() {
	bigger := make([]Event, max(64, 2*len(r.buf)))
	for i := range r.tail - r.head {
		bigger[i] = r.buf[(r.head+i)&uint32(len(r.buf)-1)]
	}
	r.head, r.tail, r.buf = 0, r.tail-r.head, bigger
}

// pop takes the oldest event; there is one.
func (r *eventRing) pop(ev *Event) {
	slot := &r.buf[r.head&uint32(len(r.buf)-1)]
	if isShort(slot.Kind) && isShort(ev.Kind) {
		ev.Kind, ev.Status, ev.Local, ev.Conn = slot.Kind, slot.Status, slot.Local, slot.Conn
		ev.Token, ev.Value, ev.Data = slot.Token, slot.Value, slot.Data
	} else {
		*ev = *slot
	}
	if !isShort(slot.Kind) {
		*slot = Event{}
	}
	r.head++
}
