package shard

import (
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// attached makes a client of a user that a shard serves.
func attached(t *testing.T, s *Shard, u *User, unread int) *Client {
	t.Helper()
	layout, err := ipc.LayoutFor(ipc.MinDepth)
	if err != nil {
		t.Fatal(err)
	}
	rings, fd, err := ipc.CreateRings(layout)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	t.Cleanup(func() { rings.Close() })
	var bells [2]*ipc.Doorbell
	for i := range bells {
		if bells[i], err = ipc.NewDoorbell(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { bells[i].Close() })
	}
	c := NewClient(Label{}, u, NewOutbox(unread, nil), rings, bells[0], bells[1], func(string) {})
	s.Do(func(mono.Time) { err = s.attach(c) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The end of a client with very many connections holds nobody up: they end a few at a time, all of them, and soon.
func TestManyConnectionsEndOneAfterTheOther(t *testing.T) {
	const conns = 10 * mostDropped
	s, stop := alone(t, still(t))
	defer stop()
	u := NewUser(1)
	c := attached(t, s, u, conns)
	s.Do(func(now mono.Time) {
		for range conns {
			if _, err := s.Dial(now, c, &ipc.Message{Peer: "off", Service: "x", Timeout: time.Hour}); err != nil {
				t.Error(err)
			}
		}
		if s.detach(now, c); len(c.conns) != conns {
			t.Errorf("%d connections", len(c.conns))
		}
		ended := 0
		for _, cn := range c.conns {
			if cn.state == connAborted {
				ended++
			}
		}
		if ended != mostDropped {
			t.Errorf("%d connections were ended at once, want %d", ended, mostDropped)
		}
	})
	<-c.Gone()
	if n := u.conns.Load() + u.dials.Load(); n != 0 {
		t.Errorf("%d connections and dials count still", n)
	}
}
