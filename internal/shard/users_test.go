package shard

import (
	"testing"

	"multiedge/internal/ipc"
)

// Nothing is received in place while clients of several users are attached: a wrong forecast would show one's bytes to
// another.
func TestClientsOfSeveralUsers(t *testing.T) {
	of := func(uid uint32) *Client { return &Client{user: NewUser(uid)} }
	for _, c := range []struct {
		clients []*Client
		want    bool
	}{
		{nil, false},
		{[]*Client{nil, of(0), nil}, false},
		{[]*Client{of(7), nil, of(7)}, false},
		{[]*Client{nil, of(0), of(7)}, true},
		{[]*Client{of(7), of(7), nil, of(0)}, true},
		{[]*Client{{user: NewUser(7), label: Label{UID: 7}}, {user: NewUser(7), label: Label{UID: 100_007}}}, true},
	} {
		s := &Shard{clients: clientSet{list: c.clients, mixed: !c.want}}
		if s.countUsers(); s.clients.mixed != c.want {
			t.Errorf("%d places: mixed is %v", len(c.clients), s.clients.mixed)
		}
	}
}

func TestEndsAreBounded(t *testing.T) {
	var e ends
	for id := range uint32(300) {
		e.add(id, ipc.StatusClosed)
	}
	e.add(299, ipc.StatusPeerDown)
	for id, want := range map[uint32]ipc.Status{0: ipc.StatusNoConn, 298: ipc.StatusClosed, 299: ipc.StatusPeerDown,
		300: ipc.StatusNoConn} {
		if got := e.why(id); got != want {
			t.Errorf("connection %d: %v, want %v", id, got, want)
		}
	}
	if got := (&ends{}).why(0); got != ipc.StatusNoConn {
		t.Errorf("of no connection at all: %v", got)
	}
}
