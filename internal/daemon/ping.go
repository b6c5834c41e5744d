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

// ping measures round trips one after the other, on the session's goroutine.
func (ss *session) ping(m *ipc.Message) (*ipc.Message, error) {
	count := max(m.Count, 1)
	if count > maxPings {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%d pings; at most %d in one request", count, maxPings)
	}
	report := PingReport{Schema: StatusSchema, Peer: m.Peer, Results: make([]PingResult, 0, count)}
	for seq := range count {
		r, err := ss.pingOnce(m.Peer, m.Timeout)
		if err != nil {
			return nil, err
		}
		r.Seq = seq
		report.Results = append(report.Results, r)
	}
	reply := m.Reply()
	var err error
	reply.Body, err = json.Marshal(report)
	return reply, err
}

func (ss *session) pingOnce(peer string, timeout time.Duration) (PingResult, error) {
	s := ss.shard
	if s == nil {
		s = ss.d.shard // no client: any will do
	}
	p := &ping{done: make(chan PingResult, 1)}
	var refusal error
	err := s.box.do(func(now mono.Time) {
		p.sent = now
		id, err := s.eng.Dial(now, peer, pingService, engine.DialOptions{Timeout: timeout})
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
	if ev.Status == engine.StatusNoService || ev.Status == engine.StatusRefused {
		r = PingResult{Status: "ok", Nanos: int64(mono.Now().Sub(p.sent))}
	}
	p.done <- r
}
