package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"multiedge/bench/scale"
	"multiedge/edge"
)

// ScaleJob is one end of a run of package scale in a lab host.
type ScaleJob struct {
	Server bool       `json:"server,omitempty"`
	Socket string     `json:"socket"`
	Spec   scale.Spec `json:"spec"`
}

// scaleEvent is what such an end reports, one JSON line each. One field is set.
type scaleEvent struct {
	Started bool          `json:"started,omitempty"`
	What    string        `json:"what,omitempty"` // with Share: progress
	Share   float64       `json:"share,omitempty"`
	Result  *scale.Result `json:"result,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// ScaleLimits is what daemons must allow for a run: lines for their [limits].
func ScaleLimits(s scale.Spec) string {
	return fmt.Sprintf("conns = %[1]d\nexports = %[1]d\nconns_per_user = %[1]d\nrequests = 65536\nbacklog = 4096", min(s.Conns+1000, 1<<16))
}

// WorkScale does a job given as JSON and writes events.
func WorkScale(ctx context.Context, job string, out io.Writer) error {
	var j ScaleJob
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	enc := json.NewEncoder(out)
	emit := func(e scaleEvent) { _ = enc.Encode(e) } // a parent that is gone will end us
	d, err := edge.Open(ctx, edge.Config{Socket: j.Socket})
	if err == nil {
		defer d.Close()
		if j.Server {
			err = scale.Serve(ctx, d, func() { emit(scaleEvent{Started: true}) })
		} else {
			var res *scale.Result
			if res, err = scale.Run(ctx, d, j.Spec, func(what string, share float64) { emit(scaleEvent{What: what, Share: share}) }); err == nil {
				emit(scaleEvent{Result: res})
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		emit(scaleEvent{Error: err.Error()})
	}
	return err
}

// Scale runs package scale between the first two hosts.
func (c *Cluster) Scale(ctx context.Context, s scale.Spec, show func(what string, share float64)) (*scale.Result, error) {
	s.Peer = c.lab.Host(1).Name()
	server, fromServer, err := c.startScale(1, ScaleJob{Server: true, Socket: c.socket(1), Spec: s})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	defer server.stop()
	select {
	case e := <-fromServer:
		if !e.Started {
			<-server.ended
			return nil, fmt.Errorf("server: %w", errors.Join(wordsOf(e), server.failure()))
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	client, events, err := c.startScale(0, ScaleJob{Socket: c.socket(0), Spec: s})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	defer client.stop()
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				<-client.ended
				return nil, fmt.Errorf("client: %w", client.failure())
			case e.Result != nil:
				return e.Result, nil
			case e.Error != "":
				err := fmt.Errorf("client: %s", e.Error)
				select { // it may be the server's fault
				case e := <-fromServer:
					err = errors.Join(err, fmt.Errorf("server: %w", wordsOf(e)))
				case <-time.After(time.Second):
				}
				return nil, err
			}
			show(e.What, e.Share)
		case e, ok := <-fromServer:
			if !ok {
				<-server.ended
				return nil, fmt.Errorf("server: %w", server.failure())
			}
			return nil, fmt.Errorf("server: %w", wordsOf(e))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func wordsOf(e scaleEvent) error {
	if e.Error == "" {
		return nil
	}
	return errors.New(e.Error)
}

func (c *Cluster) startScale(host int, j ScaleJob) (*child, <-chan scaleEvent, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, nil, err
	}
	k, err := c.start(host, CommandScale, string(b))
	if err != nil {
		return nil, nil, err
	}
	ch := make(chan scaleEvent, 1)
	go func() {
		defer close(ch)
		sc := bufio.NewScanner(k.out)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var e scaleEvent
			if json.Unmarshal(sc.Bytes(), &e) == nil {
				select {
				case ch <- e:
				case <-k.ended: // nobody listens any more
				}
			}
		}
	}()
	return k, ch, nil
}
