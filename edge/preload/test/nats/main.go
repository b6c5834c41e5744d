// Nats sends messages through a NATS server by NATS's own client of Go, and compares every byte and the order:
//
//	nats NODE SERVICE ADDRESS
//
// One client connects over net.Conn of package stream, to the service that a forwarder offers at the node; the other
// one connects over TCP, to a forwarder's address. Each publishes to the other, and asks it questions.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"multiedge/edge/stream"
)

const (
	messages  = 2000
	questions = 200
	longest   = 32 << 10
)

// dialer is what nats.SetCustomDialer takes: streams to one service, whatever the address is.
type dialer struct {
	ctx           context.Context
	node, service string
}

func (d dialer) Dial(_, _ string) (net.Conn, error) { return stream.Dial(d.ctx, d.node, d.service) }

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: nats NODE SERVICE ADDRESS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d messages and %d questions each way, over net.Conn and a forwarder\n", messages, questions)
}

func run(ctx context.Context, node, service, address string) error {
	near, err := nats.Connect("nats://"+node, nats.SetCustomDialer(dialer{ctx, node, service}), nats.NoReconnect())
	if err != nil {
		return fmt.Errorf("over a stream: %w", err)
	}
	defer near.Close()
	far, err := nats.Connect("nats://"+address, nats.NoReconnect())
	if err != nil {
		return fmt.Errorf("over a forwarder: %w", err)
	}
	defer far.Close()
	for i, pair := range [][2]*nats.Conn{{near, far}, {far, near}} {
		if err := publish(ctx, pair[0], pair[1], uint64(i)); err != nil {
			return fmt.Errorf("messages of client %d: %w", i, err)
		}
		if err := ask(ctx, pair[0], pair[1], uint64(i)); err != nil {
			return fmt.Errorf("questions of client %d: %w", i, err)
		}
	}
	return nil
}

// body is the same for the same seed and number.
func body(seed, n uint64) []byte {
	r := rand.New(rand.NewPCG(seed, n))
	b := make([]byte, r.IntN(longest))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// publish sends messages from one client to the other.
func publish(ctx context.Context, from, to *nats.Conn, seed uint64) error {
	s, err := to.SubscribeSync("bodies")
	if err != nil {
		return err
	}
	defer s.Unsubscribe()
	if err := to.FlushWithContext(ctx); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		for n := range uint64(messages) {
			if err := from.Publish("bodies", body(seed, n)); err != nil {
				sent <- err
				return
			}
		}
		sent <- from.FlushWithContext(ctx)
	}()
	for n := range uint64(messages) {
		m, err := s.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		if !bytes.Equal(m.Data, body(seed, n)) {
			return fmt.Errorf("message %d has other bytes", n)
		}
	}
	return <-sent
}

// ask lets one client answer what the other one asks: each answer is the question.
func ask(ctx context.Context, from, to *nats.Conn, seed uint64) error {
	s, err := to.Subscribe("questions", func(m *nats.Msg) {
		if err := m.Respond(m.Data); err != nil {
			log.Print("an answer: ", err)
		}
	})
	if err != nil {
		return err
	}
	defer s.Unsubscribe()
	if err := to.FlushWithContext(ctx); err != nil {
		return err
	}
	for n := range uint64(questions) {
		want := body(seed+1000, n)
		m, err := from.RequestWithContext(ctx, "questions", want)
		if err != nil {
			return fmt.Errorf("question %d: %w", n, err)
		}
		if !bytes.Equal(m.Data, want) {
			return fmt.Errorf("question %d: other bytes", n)
		}
	}
	return nil
}
