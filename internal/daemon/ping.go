package daemon

import (
	"encoding/json"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// pingService is a service nobody can offer. Asking a peer for it is a round trip through both engines, and through neither's
// applications: the answer is StatusNoService.
const pingService = "\x00ping"

const maxPings = 1000 // of one request

// ping is one measurement under way.
type ping struct {
	sent mono.Time
	done chan PingResult // buffered
}

// PingResult is one measurement.
type PingResult struct {
	Seq    int    `json:"seq"`
	Nanos  int64  `json:"rtt_ns,omitempty"`
	Status string `json:"status"` // "ok", or why there was no answer
	Text   string `json:"text,omitempty"`
}

// PingReport answers a ping request.
type PingReport struct {
	Schema  int          `json:"schema"`
	Peer    string       `json:"peer"`
	Results []PingResult `json:"results"`
}

// startPing pings on a goroutine of its own: the session's must notice when the client goes.
func (ss *session) startPing(m *ipc.Message) (*ipc.Message, error) {
	if !ss.pinging.CompareAndSwap(false, true) {
		return nil, ipc.Errorf(ipc.CodeBusy, "a ping of this client is under way; wait for its answer")
	}
	s := ss.shard
	if s == nil {
		s = ss.d.shard // no client: any will do
	}
	ss.tracer.Go(func() {
		reply, err := ss.ping(s, m)
		if err != nil {
			reply = m.Fail(err)
		}
		ss.pinging.Store(false)
		if err := ss.conn.Send(reply); err != nil {
			ss.end()
		}
	})
	return nil, nil
}

// ping measures round trips one after the other.
func (ss *session) ping(s *shard, m *ipc.Message) (*ipc.Message, error) {
	count := max(m.Count, 1)
	if count > maxPings {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%d pings; at most %d in one request", count, maxPings)
	}
	report := PingReport{Schema: StatusSchema, Peer: m.Peer, Results: make([]PingResult, 0, count)}
	for seq := range count {
		r, err := ss.pingOnce(s, m.Peer, m.Timeout)
		if err != nil {
			return nil, err
		}
		r.Seq = seq
		report.Results = append(report.Results, r)
	}
	reply := m.Reply()
	var err error
	if reply.Body, err = json.Marshal(report); err == nil && len(reply.Body) > pageRoom { // a reason for each: the first will do
		for i := 1; i < len(report.Results); i++ {
			report.Results[i].Text = ""
		}
		reply.Body, err = json.Marshal(report)
	}
	return reply, err
}

func (ss *session) pingOnce(s *shard, peer string, timeout time.Duration) (PingResult, error) {
	p := &ping{done: make(chan PingResult, 1)}
	var refusal error
	var id engine.ConnID
	err := s.box.do(func(now mono.Time) {
		p.sent = now
		var err error
		id, err = s.eng.Dial(now, peer, pingService, engine.DialOptions{Timeout: timeout, Ping: true})
		if err != nil {
			refusal = ipc.Errorf(ipc.CodeInvalid, "%v", err)
			return
		}
		s.pings[id] = p
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return PingResult{}, err
	}
	select {
	case r := <-p.done:
		return r, nil
	case <-ss.quit:
		s.box.post(func(now mono.Time) {
			if s.pings[id] == p { // nobody waits for it any more
				s.eng.Abort(now, id, engine.StatusAborted)
			}
		})
		return PingResult{}, errStopped
	case <-ss.d.stopped:
		return PingResult{}, errStopped
	}
}

// pinged ends a measurement.
func (s *shard) pinged(now mono.Time, p *ping, ev *engine.Event) {
	if ev.Kind == engine.EvConnected { // no peer of ours does that
		s.eng.Abort(now, ev.Conn, engine.StatusAborted)
		return
	}
	if ev.Kind != engine.EvClosed {
		return
	}
	delete(s.pings, ev.Conn)
	r := PingResult{Status: ipc.Status(ev.Status).Code(), Text: ev.Text}
	switch ev.Status {
	case engine.StatusTimeout: // what became of a service that nobody knows by name is not of interest
		r.Text = "no answer; see the paths to the peer: edgectl peer"
	case engine.StatusNoService, engine.StatusRefused:
		r = PingResult{Status: "ok", Nanos: int64(mono.Now().Sub(p.sent))}
	}
	p.done <- r
}
