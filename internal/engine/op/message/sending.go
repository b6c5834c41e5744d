package message

// Sending is what one end of a connection knows of the peer's buffers. A send has its number among the messages from
// the moment that the peer is known to have a buffer for it.
type Sending struct {
	next    uint32 // number of the next
	credits uint32 // number of the first that the peer has no buffer for, or next
	shared  bool   // the peer takes buffers from a queue that others use too: they must be asked for
	asked   uint32 // credits were asked for up to this number, or next
}

// Next gives the next message its number.
func (s *Sending) Next() uint32 {
	n := s.next
	s.next++
	s.credits, s.asked = atLeast(s.credits, s.next), atLeast(s.asked, s.next)
	return n
}

// Credit is for how many messages more the peer has buffers.
func (s *Sending) Credit() int { return int(int32(s.credits - s.next)) }

// OnCredit takes news of the peer's buffers: the number of the first message that has none. It reports false if no peer
// that counts right says so.
func (s *Sending) OnCredit(limit uint32, shared bool) bool {
	if int32(limit-s.next) > MaxCredit {
		return false
	}
	s.shared = shared
	s.credits = atLeast(s.credits, limit)
	return true
}

// Asks reports whether buffers must be asked for, since so many operations wait and the peer was asked for fewer.
func (s *Sending) Asks(waiting int) bool {
	return s.shared && waiting > 0 && int32(s.next+uint32(waiting)-s.asked) > 0
}

// Ask returns up to which number buffers are asked for, where so many operations wait.
func (s *Sending) Ask(waiting int) uint32 {
	s.asked = s.next + uint32(waiting)
	return s.asked
}
