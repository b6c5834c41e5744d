package shard

import (
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// pingService is a service nobody can offer. Asking a peer for it is a round trip through both engines, and through
// neither's applications: the answer is StatusNoService.
const pingService = "\x00ping"

// Ping is one measurement under way.
type Ping struct {
	Done chan Pong // buffered: gets the result
	id   engine.ConnID
	sent mono.Time
}

// Pong is the result of a Ping.
type Pong struct {
	Nanos  int64  // of the round trip, if Status is "ok"
	Status string // or why there was no answer
	Text   string
}

// Ping begins to measure a round trip to a peer. Any goroutine may call it.
func (s *Shard) Ping(peer string, timeout time.Duration) (p *Ping, err error) {
	p = &Ping{Done: make(chan Pong, 1)}
	if e := s.box.do(func(now mono.Time) {
		p.sent = now
		p.id, err = s.eng.Dial(now, peer, pingService, engine.DialOptions{Timeout: timeout, Ping: true})
		if err == nil {
			s.pings[p.id] = p
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	return p, nil
}

// EndPing ends a measurement for which nobody waits any more. It does not wait.
func (s *Shard) EndPing(p *Ping) {
	s.box.post(func(now mono.Time) {
		if s.pings[p.id] == p {
			s.eng.Abort(now, p.id, engine.StatusAborted)
		}
	})
}

// pinged ends a measurement.
func (s *Shard) pinged(now mono.Time, p *Ping, ev *engine.Event) {
	if ev.Kind == engine.EvConnected { // no peer of ours does that
		s.eng.Abort(now, ev.Conn, engine.StatusAborted)
		return
	}
	if ev.Kind != engine.EvClosed {
		return
	}
	delete(s.pings, ev.Conn)
	r := Pong{Status: ev.Status.Code().String(), Text: ev.Text}
	switch ev.Status {
	case engine.StatusTimeout: // what became of a service that nobody knows by name is not of interest
		r.Text = "no answer; see the paths to the peer: edgectl peer"
	case engine.StatusNoService, engine.StatusRefused:
		r = Pong{Status: "ok", Nanos: int64(mono.Now().Sub(p.sent))}
	}
	p.Done <- r
}
