package shard

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// A user whose clients dial a peer that is off, with all the patience there is, leaves room for the dials of others,
// and may dial again when he has given some up.
func TestDialsLeaveRoomForOthers(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	client := func(u *User) *Client { return &Client{user: u, conns: map[engine.ConnID]*Conn{}} }
	crowd, lone := NewUser(1), client(NewUser(2))
	dial := func(now mono.Time, c *Client) error {
		_, err := s.Dial(now, c, &ipc.Message{ID: 1, Kind: ipc.KindDial, Peer: "off", Service: "x",
			Timeout: 1<<63 - 1 - time.Duration(now)})
		return err
	}
	s.Do(func(now mono.Time) {
		var last *Client
		for range 2 * maxDials / s.limits.Dials {
			last = client(crowd)
			for range s.limits.Dials {
				if err := dial(now, last); err != nil {
					break
				}
			}
		}
		if err := dial(now, lone); err != nil {
			t.Errorf("%d dials of another user wait: %v", crowd.dials.Load(), err)
		}
		if err := dial(now, last); err == nil {
			t.Error("a user's dials are not bounded")
		}
	})
	var one *Conn
	s.Do(func(now mono.Time) {
		for _, cn := range s.clients.conns {
			if cn.client.user == crowd {
				one = cn
			}
		}
		s.Abort(now, one, &ipc.Message{})
		s.handleEvents(now)
		if err := dial(now, one.client); err != nil || crowd.dials.Load() != maxDials/2 {
			t.Errorf("%d dials wait after one was given up and another made: %v", crowd.dials.Load(), err)
		}
	})
}
