package ipc

import (
	"context"
	"encoding/json"
	"fmt"
)

// Ask is Conn.Ask on a connection of its own to the daemon at path, which ends with ctx.
func Ask(ctx context.Context, path string, m Message) (json.RawMessage, error) {
	c, err := Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	return c.Ask(m)
}

// Ask sends a request and returns the body of the answer, lists joined from their pages. A request that was refused
// returns an *Error.
func (c *Conn) Ask(m Message) (json.RawMessage, error) {
	var joined []json.RawMessage
	for {
		m.ID++
		if err := c.Send(&m); err != nil {
			return nil, fmt.Errorf("sending to the daemon: %w", err)
		}
		reply, err := c.Recv()
		if err != nil {
			return nil, fmt.Errorf("the daemon ended the connection: %w", err)
		}
		if reply.Error != nil {
			return nil, reply.Error
		}
		if !reply.More && m.Page == 0 {
			return reply.Body, nil
		}
		var list []json.RawMessage
		if err := json.Unmarshal(reply.Body, &list); err != nil {
			return nil, fmt.Errorf("the daemon's answer: %w", err)
		}
		joined = append(joined, list...)
		if !reply.More {
			return json.Marshal(joined)
		}
		m.Page++
	}
}
