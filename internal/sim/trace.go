package sim

import (
	"encoding/binary"
	"fmt"

	"multiedge/internal/engine"
)

// trace is the fingerprint of a run. Of sealed worlds it holds what is the same in every run: times, links, lengths and
// the clear part of headers, for TLS draws its own randomness. Of plaintext worlds it holds every byte.
type trace struct {
	on, clear bool
	sum       uint64
}

func (t *trace) add(b []byte) {
	for _, c := range b {
		t.sum = (t.sum ^ uint64(c)) * 1099511628211
	}
}

func (t *trace) number(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	t.add(b[:])
}

func (t *trace) frame(w *World, from *Node, link int, frame []byte) {
	if w.Log != nil {
		fmt.Fprintf(w.Log, "%v node%d link %d: type %d, %d bytes to %x, % x\n", w.Now, from.Index, link,
			frameType(frame), len(frame), frame[:6], frame[ethLen:ethLen+clearLen])
	}
	if !t.on {
		return
	}
	t.number(uint64(w.Now))
	t.number(uint64(from.Index)<<32 | uint64(link))
	t.number(uint64(len(frame)))
	if t.clear {
		frame = frame[:ethLen+clearLen]
	}
	t.add(frame)
}

func (t *trace) event(w *World, n *Node, ev *engine.Event) {
	if w.Log != nil {
		fmt.Fprintf(w.Log, "%v node%d event %d: connection %x, token %d, %v, peer %s, link %d %s\n", w.Now, n.Index,
			ev.Kind, ev.Conn, ev.Token, ev.Status, ev.PeerName, ev.Link, ev.Text)
	}
	if !t.on {
		return
	}
	t.number(uint64(w.Now))
	t.number(uint64(n.Index)<<32 | uint64(ev.Kind)<<16 | uint64(ev.Link)<<8 | uint64(ev.Status))
	t.number(uint64(ev.Conn))
	t.number(ev.Token)
}
