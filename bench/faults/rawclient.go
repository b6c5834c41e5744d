package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/raw"
	"multiedge/internal/ipc"
)

// rawClient is a client of a scenario that speaks the daemon's protocol by hand.
type rawClient struct{ *raw.Client }

const rawDepth = 64

// rawTime bounds the wait for any answer of the daemon.
const rawTime = 5 * time.Second

func newRawClient(ctx context.Context, socket string) *rawClient {
	return &rawClient{kit.Get(raw.Dial(ctx, socket, rawDepth, rawTime))}
}

// gone waits until the daemon ends the session. It returns an error if the daemon does not.
func (c *rawClient) gone() error {
	start := time.Now()
	_, _, err := c.Next(func(*ipc.Message) bool { return false })
	if err == nil || time.Since(start) >= rawTime {
		return errors.New("the daemon kept a client that broke the rules")
	}
	return nil
}

// dial connects to a server of a scenario and returns the connection's number and the key of what it exports.
func (c *rawClient) dial(job *Job, n int) (conn uint32, key uint64, size uint64) {
	hello := kit.Get(json.Marshal(greeting{ID: fmt.Sprintf("%s-%d", job.Name, n), Size: 64 << 10, Seed: job.Seed}))
	conn, key, size, err := c.Connect(job.Peer, job.Service, hello)
	kit.Check(err)
	return conn, key, size
}

// post publishes submissions, waits for as many completions and returns them by token.
func (c *rawClient) post(es []ipc.SQE) (map[uint64]ipc.Status, error) {
	out := map[uint64]ipc.Status{}
	for i := range es {
		c.SQ.Put(&es[i])
	}
	c.Publish()
	var buf [rawDepth]ipc.CQE
	for start := time.Now(); len(out) < len(es); {
		n, err := c.CQ.Drain(buf[:])
		if err != nil {
			return out, err
		}
		for _, e := range buf[:n] {
			if _, twice := out[e.Token]; twice {
				return out, fmt.Errorf("operation %d completed twice", e.Token)
			}
			out[e.Token] = e.Status
		}
		if n == 0 {
			if time.Since(start) > rawTime {
				return out, fmt.Errorf("%d of %d operations completed", len(out), len(es))
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return out, nil
}
