package daemon

import (
	"encoding/json"
	"time"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/shard"
)

const maxPings = 1000 // of one request

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

// startPing pings on a goroutine of its own: the control connection's must notice when the client goes.
func (ss *controlConn) startPing(m *ipc.Message) (*ipc.Message, error) {
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
func (ss *controlConn) ping(s *shard.Shard, m *ipc.Message) (*ipc.Message, error) {
	count := max(m.Count, 1)
	if count > maxPings {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%d pings; at most %d in one request", count, maxPings)
	}
	report := PingReport{Schema: inspect.StatusSchema, Peer: m.Peer, Results: make([]PingResult, 0, count)}
	for seq := range count {
		if seq > 0 {
			ss.pauseFor(1) // each makes a request of the peer, which it refuses
		}
		r, err := ss.pingOnce(s, m.Peer, m.Timeout)
		if err != nil {
			return nil, err
		}
		r.Seq = seq
		report.Results = append(report.Results, r)
	}
	reply := m.Reply()
	var err error
	// a reason for each: the first will do
	if reply.Body, err = json.Marshal(report); err == nil && len(reply.Body) > inspect.PageRoom {
		for i := 1; i < len(report.Results); i++ {
			report.Results[i].Text = ""
		}
		reply.Body, err = json.Marshal(report)
	}
	return reply, err
}

func (ss *controlConn) pingOnce(s *shard.Shard, peer string, timeout time.Duration) (PingResult, error) {
	if err := ss.d.reachSelf(s, peer); err != nil {
		return PingResult{}, err
	}
	p, err := s.Ping(peer, timeout)
	if err != nil {
		return PingResult{}, err
	}
	select {
	case r := <-p.Done:
		return PingResult{Nanos: r.Nanos, Status: r.Status, Text: r.Text}, nil
	case <-ss.quit:
		s.EndPing(p)
		return PingResult{}, shard.ErrStopped
	case <-ss.d.stopped:
		return PingResult{}, shard.ErrStopped
	}
}
