package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"multiedge/internal/daemon"
	"multiedge/internal/ipc"
)

type topCmd struct {
	Interval float64 `short:"i" default:"1" placeholder:"SECONDS" help:"Pause between two looks (default: ${default})."`
}

// Help is what edgectl top --help says beside the options.
func (*topCmd) Help() string {
	return "q or Ctrl-C ends it. Where the output is not a terminal, and with -j, it looks twice, prints one table and ends."
}

func (c *topCmd) Run(g *globals) error {
	if err := checkInterval(c.Interval); err != nil {
		return err
	}
	first, err := g.fullSample()
	if err != nil {
		return err
	}
	pause := time.Duration(c.Interval * float64(time.Second))
	if out, ok := g.out.(*os.File); ok && isTerminal(out) && !g.JSON {
		return c.live(g, out, first, pause)
	}
	g.pause(pause)
	second, err := g.fullSample()
	if err != nil {
		return gone(err)
	}
	if second.restartedSince(&first.sample) {
		return errors.New("the daemon was restarted meanwhile; ask again")
	}
	r := rank(second, first)
	if g.JSON {
		return printJSON(g, r)
	}
	var b strings.Builder
	r.write(&b, unlimited)
	_, err = io.WriteString(g.out, b.String())
	return err
}

// look is what one look at the daemon found.
type look struct {
	*fullSample
	err error
}

// live shows one table after the other until it is told to end. A daemon that goes is waited for.
func (c *topCmd) live(g *globals, out *os.File, before *fullSample, pause time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	looks := make(chan look)
	go g.watch(ctx, pause, looks)

	s, err := openScreen(g.in, out)
	if err != nil {
		return err
	}
	defer s.close()
	text := "looking ..."
	for {
		if err := s.draw(text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-s.keys:
			if !ok || strings.ContainsRune("qQ\x03\x04", rune(key)) { // q, Ctrl-C, Ctrl-D
				return nil
			}
		case <-resized:
		case l := <-looks:
			_, height := s.size()
			switch {
			case l.err != nil:
				text = gone(l.err).Error() + "\n\nwaiting for it; q ends"
				continue
			case l.restartedSince(&before.sample):
				text = "the daemon was restarted: its counters begin anew"
			default:
				text = rank(l.fullSample, before).text(height)
			}
			before = l.fullSample
		}
	}
}

// watch looks at the daemon now and then, so that keys need not wait for its answer.
func (g *globals) watch(ctx context.Context, pause time.Duration, looks chan<- look) {
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		s, err := g.fullSample()
		select {
		case looks <- look{s, err}:
		case <-ctx.Done():
			return
		}
	}
}

// fullSample is a sample with peers and connections.
type fullSample struct {
	sample
	peers []daemon.PeerStatus // one of each node
	conns []daemon.ConnStatus
}

// mostConns is up to how many connections are asked for: the daemon makes a list of all for each page of it.
const mostConns = 1000

func (g *globals) fullSample() (*fullSample, error) {
	s, err := g.sample()
	if err != nil {
		return nil, err
	}
	full := &fullSample{sample: *s}
	peers, err := get[[]daemon.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err != nil {
		return nil, err
	}
	full.peers = daemon.MergePeers(peers)
	if s.status.Connections <= mostConns {
		full.conns, err = get[[]daemon.ConnStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "conn"})
	}
	return full, err
}
