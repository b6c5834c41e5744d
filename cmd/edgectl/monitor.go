package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"time"

	"multiedge/internal/daemon"
	"multiedge/internal/ipc"
)

type monitorCmd struct{}

// Help is what edgectl monitor --help says beside the options.
func (*monitorCmd) Help() string {
	return "Prints a line for each event until it is interrupted: links up and down, peers (sessions) up and down, " +
		"states of paths, clients that attach, leave or are evicted, reloads, draining. " +
		"With -j each line is a JSON object. It fails when the daemon ends."
}

// Run ends well when it is interrupted.
func (*monitorCmd) Run(g *globals) error {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	return g.monitor(ctx)
}

// monitor prints events until ctx ends or the daemon does.
func (g *globals) monitor(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	conn, err := ipc.Dial(dialing, g.Socket)
	if err != nil {
		return dialError(g.Socket, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.Send(&ipc.Message{ID: 1, Kind: ipc.KindWatch}); err != nil {
		return fmt.Errorf("sending to the daemon: %w", err)
	}
	for {
		m, err := conn.Recv()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the daemon is gone")
		case err != nil:
			return fmt.Errorf("the daemon is gone: %w", err)
		case m.Error != nil:
			return errors.New(m.Error.Text)
		case m.Kind != ipc.KindEvent:
			continue // the answer
		}
		if err := g.printEvent(m.Body); err != nil {
			return err
		}
	}
}

func (g *globals) printEvent(body []byte) error {
	if g.JSON {
		_, err := fmt.Fprintf(g.out, "%s\n", body)
		return err
	}
	var ev daemon.Event
	if err := json.Unmarshal(body, &ev); err != nil {
		return fmt.Errorf("the daemon's event: %w", err)
	}
	_, err := io.WriteString(g.out, clean(eventText(&ev)))
	return err
}

// eventText is the line of an event.
func eventText(ev *daemon.Event) string {
	var b strings.Builder
	if ev.Missed > 0 {
		fmt.Fprintf(&b, "(%d events before the next one came too fast to be shown)\n", ev.Missed)
	}
	fmt.Fprintf(&b, "%s  %s", ev.Time.Local().Format(time.StampMilli), ev.Kind)
	if ev.Peer != "" || ev.Node != "" {
		fmt.Fprintf(&b, "  peer %s", cmp.Or(ev.Peer, ev.Node))
	}
	if ev.Link != "" {
		fmt.Fprintf(&b, "  link %s", ev.Link)
	}
	if ev.PID != 0 {
		fmt.Fprintf(&b, "  process %d", ev.PID)
		if ev.Program != "" {
			fmt.Fprintf(&b, " (%s)", ev.Program)
		}
		fmt.Fprintf(&b, " of user %d", ev.UID)
	}
	if ev.Text != "" {
		fmt.Fprintf(&b, "  %s", strings.ReplaceAll(ev.Text, "\n", "; "))
	}
	return b.String() + "\n"
}
