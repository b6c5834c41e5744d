package path

import (
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// Remote is one link of a peer as it announced it.
type Remote struct {
	Addr    frame.Addr
	MTU     int
	Joins   bool // takes frames in datagrams too (clause 12)
	Slots   int  // 0: gone
	Shuffle uint16
	version uint32 // of the announcement, in a sealed session
}

// described is the link that a description is of.
func described(l *wire.LinkInfo) Remote {
	return Remote{Addr: l.Addr, MTU: int(l.MTU), Joins: l.Joins, Slots: int(l.RxSlots), Shuffle: l.Shuffle,
		version: l.Version}
}

// Changes reports whether a description of one of the peer's links, than which nothing newer is known, is news.
func (s *Set) Changes(l *wire.LinkInfo) bool {
	was := s.Links[l.Link]
	newest := was.version <= l.Version
	was.version = l.Version
	return newest && was != described(l)
}

// SetRemoteLink takes what the peer says of one of its links, unless something newer is known (clause 10.4).
func (s *Set) SetRemoteLink(l *wire.LinkInfo) {
	j := int(l.Link)
	if s.Links[j].version > l.Version {
		return
	}
	s.Links[j] = described(l)
	s.announced, s.Known = s.announced|1<<j, s.Known|1<<j
	s.ipLinks &^= 1 << j
	if !l.Addr.Known() { // clause 21.4
		s.ipLinks |= 1 << j
	}
	if l.RxSlots == 0 {
		s.announced &^= 1 << j
	}
}
