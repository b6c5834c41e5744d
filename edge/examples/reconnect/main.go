// Reconnect sends numbered lines to a server, whatever happens to connections: after each end the client dials again
// and repeats the line that may not have arrived, and the server takes each line once. Each client tells the server its
// number when it dials. The server ends each connection after three lines, to show it; restart edged on either host for
// more. Clients take turns: the server has one connection at a time.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"time"

	"multiedge/edge"
	"multiedge/edge/examples/internal/run"
)

const about = "Reconnect sends ten lines to a server that ends each connection after three of them."

const (
	lines  = 10
	each   = 3  // lines of a connection
	buffer = 64 // bytes for a line

	mostClients = 1024 // that the server remembers
)

func main() { run.Main(about, "lines", serve, use) }

func serve(ctx context.Context, dev *edge.Device, service string, ready func()) error {
	l, err := dev.Listen(ctx, service) // it outlives the daemon
	if err != nil {
		return err
	}
	ready()
	next := map[string]*uint32{} // for each client, the line that has not come yet
	for {
		req, err := l.Next(ctx)
		if err != nil {
			return err
		}
		client := string(req.Data())
		if next[client] == nil {
			if len(next) == mostClients {
				req.Refuse("too many clients")
				continue
			}
			next[client] = new(uint32)
		}
		c, err := req.Accept(ctx, nil)
		if err != nil {
			continue // the client has given up
		}
		if err := take(ctx, c, next[client]); err != nil && ctx.Err() == nil {
			log.Println("a connection ended:", err)
		}
	}
}

// take takes lines of one connection.
func take(ctx context.Context, c *edge.Conn, next *uint32) error {
	queue, err := c.Device().NewCompletionQueue(each)
	if err != nil {
		return err
	}
	mem, err := c.Device().Register(each * buffer)
	if err != nil {
		return err
	}
	defer mem.Close()
	defer c.Close()
	posted := 0
	for ; posted < each; posted++ { // the next send finds no buffer and fails with the connection
		work := edge.Work{Kind: edge.Receive, Local: mem, LocalOff: posted * buffer, Len: buffer, Queue: queue}
		if _, err = c.Post(ctx, &work); err != nil {
			break // it ended already; lines may have come before
		}
	}
	var got [1]edge.Completion
	for i := range posted {
		if _, err := queue.Wait(ctx, got[:]); err != nil {
			return err
		}
		if got[0].Err != nil {
			return got[0].Err
		}
		if got[0].Imm == *next { // else it came already, on a connection that ended before the client knew
			fmt.Printf("%d: %s\n", *next, mem.Bytes()[i*buffer:][:got[0].Len])
			*next++
		}
	}
	return err
}

func use(ctx context.Context, dev *edge.Device, node, service string) error {
	s := &outbox{dev: dev, node: node, service: service, number: make([]byte, 8)}
	rand.Read(s.number)
	for i := range uint32(lines) {
		if err := s.send(ctx, i, fmt.Appendf(nil, "line %d", i)); err != nil {
			return err
		}
	}
	fmt.Printf("sent %d lines over %d connections\n", lines, s.dialled)
	return s.conn.Close()
}

// outbox is one connection after the other.
type outbox struct {
	dev           *edge.Device // attaches again by itself when the daemon is restarted
	node, service string
	number        []byte     // of this client
	conn          *edge.Conn // nil: to be dialled
	dialled       int
}

// send sends a line, on one connection after the other, until it has arrived or fails for good.
func (s *outbox) send(ctx context.Context, number uint32, line []byte) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.try(ctx, number, line)
		if err == nil || !passes(err) {
			return err
		}
		if s.conn != nil {
			s.conn.Abort()
			s.conn = nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *outbox) try(ctx context.Context, number uint32, line []byte) (err error) {
	if s.conn == nil {
		if s.conn, err = s.dev.Dial(ctx, s.node, s.service, edge.Data(s.number)); err != nil {
			return err
		}
		s.dialled++
	}
	op, err := s.conn.Post(ctx, &edge.Work{Kind: edge.Send, Inline: line, Flags: edge.Notify, Imm: number})
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}

// passes reports whether another try may succeed: docs/GO.md has the list.
func passes(err error) bool {
	for _, e := range []error{
		edge.ErrDaemonDown, edge.ErrPeerDown, edge.ErrPeerClosed, edge.ErrReset, // it ended: dial again
		edge.ErrPeerUnknown, edge.ErrNoService, edge.ErrTimeout, edge.ErrRefused, // it may come
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
