package peering

import (
	"multiedge/flowctl"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/path"
	"multiedge/internal/mono"
)

// What becomes of what frames carried, by their records.

// onAcked acts on what frames carried that the peer has received, and frees their records.
func (s *Session) onAcked(now mono.Time, acked []flowctl.Sent) {
	e := s.e
	for k := range acked {
		head := int32(acked[k].Tag &^ path.TagNotes)
		for i := head; i != 0; i = e.recs.Pool[i].Next {
			r := &e.recs.Pool[i]
			if 1<<r.Kind&build.RecHeard != 0 {
				e.ops.OnAcked(now, *r)
			}
		}
		e.recs.Release(head)
	}
}

// onLost queues again what lost frames carried, where it still matters (clause 3.6).
func (s *Session) onLost(lost []flowctl.Sent) {
	e := s.e
	for k := range lost {
		head := int32(lost[k].Tag &^ path.TagNotes)
		for i := head; i != 0; i = e.recs.Pool[i].Next {
			switch r := &e.recs.Pool[i]; r.Kind {
			case build.RecLink:
				s.PeerLinks.News |= 1 << r.Off
			case build.RecKeys:
				s.keysLost(uint32(r.Off))
			default:
				e.ops.OnLost(r)
			}
		}
		e.recs.Release(head)
	}
}
