// Echo writes a line into the memory of a server, which writes it back into the client's. Neither asks the other's
// processor for anything: a notification tells that a write is complete.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"

	"multiedge/edge"
	"multiedge/edge/examples/internal/run"
)

const about = "Echo sends its arguments to a server, by a write into its memory, and prints what is written back."

// size is how many bytes each end exports.
const size = 4096

func main() { run.Main(about, "echo", serve, use) }

func serve(ctx context.Context, dev *edge.Device, service string, ready func()) error {
	l, err := dev.Listen(ctx, service)
	if err != nil {
		return err
	}
	ready()
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			if err := echo(ctx, c); err != nil {
				log.Println("echo:", err)
			}
		}()
	}
}

// echo answers one client until it closes.
func echo(ctx context.Context, c *edge.Conn) error {
	defer c.Close()
	mem, err := c.Device().Register(size)
	if err != nil {
		return err
	}
	defer mem.Close()
	if _, err := mem.Export(c, "line", edge.RemoteWrite, 0, size); err != nil {
		return err
	}
	back, err := c.Import(ctx, "echo") // the client's memory
	if err != nil {
		return err
	}
	for {
		n, err := c.WaitNotify(ctx)
		if err == edge.ErrPeerClosed {
			return nil
		}
		if err != nil {
			return err
		}
		op, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Local: mem, LocalOff: n.Offset, Len: n.Len,
			Remote: back, Flags: edge.Notify})
		if err != nil {
			return err
		}
		if err := op.Wait(ctx); err != nil {
			return err
		}
	}
}

func use(ctx context.Context, dev *edge.Device, node, service string) error {
	line := "hello"
	if flag.NArg() > 0 {
		line = strings.Join(flag.Args(), " ")
	}
	c, err := dev.Dial(ctx, node, service)
	if err != nil {
		return err
	}
	defer c.Close()
	mem, err := dev.Register(2 * size) // the line that is sent, and behind it the one that comes back
	if err != nil {
		return err
	}
	if _, err := mem.Export(c, "echo", edge.RemoteWrite, size, size); err != nil {
		return err
	}
	to, err := c.Import(ctx, "line")
	if err != nil {
		return err
	}
	n := copy(mem.Bytes()[:size], line)
	op, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Local: mem, Len: n, Remote: to, Flags: edge.Notify})
	if err != nil {
		return err
	}
	if err := op.Wait(ctx); err != nil { // it is in the server's memory
		return err
	}
	back, err := c.WaitNotify(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", back.Grant.Bytes()[back.Offset:][:back.Len])
	return nil
}
