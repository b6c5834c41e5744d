package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

type topCmd struct {
	Interval time.Duration `short:"i" default:"1s" placeholder:"SECONDS" help:"Interval between refreshes, in seconds, or with a unit, such as 500ms (default: ${default})."`
}

// Help is what edgectl top --help says beside the options.
func (*topCmd) Help() string {
	return "q or Ctrl-C ends it, tab shows one of the tables alone, s orders connections by another column. " +
		"If the output is not a terminal, and with -j, it takes two samples, prints one report and ends."
}

// Validate is called before Run.
func (c *topCmd) Validate() error { return checkInterval(c.Interval) }

func (c *topCmd) Run(g *globals) error {
	first, err := g.fullSample()
	if err != nil {
		return err
	}
	if out, ok := g.out.(*os.File); ok && isTerminal(out) && !g.JSON {
		return live{g: g, pause: c.Interval, before: first, note: "looking ..."}.run(out)
	}
	g.pause(c.Interval)
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
	r.write(&b, unlimited, allTables)
	_, err = io.WriteString(g.out, b.String())
	return err
}

// fullSample is a sample with peers and connections.
type fullSample struct {
	sample
	peers []inspect.PeerStatus // one of each node
	conns []inspect.ConnStatus
}

// mostConns is up to how many connections are asked for: the daemon makes a list of all for each page of it.
const mostConns = 1000

func (g *globals) fullSample() (*fullSample, error) {
	s, err := g.sample()
	if err != nil {
		return nil, err
	}
	full := &fullSample{sample: *s}
	peers, err := get[[]inspect.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err != nil {
		return nil, err
	}
	full.peers = inspect.MergePeers(peers)
	if s.status.Connections <= mostConns {
		full.conns, err = get[[]inspect.ConnStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "conn"})
	}
	return full, err
}
