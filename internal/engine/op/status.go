package op

// ConnStatus describes one connection.
type ConnStatus struct {
	ID          ConnID
	Peer        string
	Service     string
	State       string
	Ordered     bool
	Submitted   uint32 // operations so far, modulo 2^32
	BytesIn     uint64 // of operations that succeeded
	BytesOut    uint64
	Outstanding int
	Held        int // segments behind fences
	Notes       int // notifications not taken yet

	Waiting  int // operations that wait for a buffer at the peer, or behind one that does
	Credit   int // messages that the peer has buffers for
	Receives int // buffers posted for the peer's messages, those that are being filled too
	Sharing  int // connections that take from the same queue as this one; 0: it has its own
}

var connStateText = [...]string{"free", "dialing", "incoming", "open", "closing", "last"}

// SnapshotConns looks at n places of connections as SnapshotPeers does at peers.
func (e *Endpoint) SnapshotConns(out []ConnStatus, from, n int) (_ []ConnStatus, next int) {
	end := min(from+n, len(e.Conns.byIndex))
	for i := from; i < end; i++ {
		if c := e.Conns.byIndex[i]; c.state != connFree && c.state != connLast {
			out = append(out, c.describe())
		}
	}
	if end >= len(e.Conns.byIndex) {
		end = 0
	}
	return out, end
}

func (c *Conn) describe() ConnStatus {
	st := ConnStatus{
		ID: c.ID, Peer: c.dial.peer, Service: c.dial.service, State: connStateText[c.state], Ordered: c.ordered,
		Submitted: uint32(c.send.next),
		BytesIn:   c.bytesIn, BytesOut: c.bytesOut, Outstanding: c.send.pending, Held: c.recv.held,
		Notes: c.recv.notes.Len(),
	}
	if c.S != nil {
		st.Peer = c.S.Peer.Name
	}
	if m := c.msgs; m != nil {
		st.Waiting, st.Credit = c.waiting(), max(0, m.out.Credit())
		if q := m.in.From(); q != nil {
			st.Receives, st.Sharing = m.in.Filling()+q.Posted(), q.Takers()
		}
	}
	return st
}
