package fabric

import (
	"encoding/binary"
	"fmt"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
)

// What precedes the first flow: sessions, whose paths find their frame size, and connections.

const (
	service    = "flows"
	openLimit  = 20 * time.Second       // of virtual time
	settleStep = 100 * time.Millisecond // between two looks at paths
	// between two dials. Of many hosts that dial one at the same moment, all Probes of a frame size meet at its port,
	// and again at each repetition.
	dialEvery = 10 * time.Microsecond
)

// Open makes all channels ready. show is called now and then with how far that is, 0 to 1. From its return on links
// fail as Options says.
func (n *Net) Open(show func(share float64)) error {
	if n.engines != nil {
		if err := n.engines.connect(show); err != nil {
			return err
		}
	}
	n.fail()
	return nil
}

// connect dials all channels and waits until every session uses all its lanes, with the frames that the MTU allows.
func (x *engines) connect(show func(share float64)) error {
	n := x.n
	channels := n.opt.Channels
	for i, c := range channels {
		from, to := x.list[c.From], x.list[c.To]
		to.e.Listen(service)
		from.e.SetEndpoints(n.Now, to.id, []frame.Addr{front(to.index)})
		id, err := from.e.Dial(n.Now, hostName(c.To), service, engine.DialOptions{Timeout: openLimit,
			Data: binary.BigEndian.AppendUint32(nil, uint32(i))})
		if err != nil {
			return fmt.Errorf("fabric: host %d dials %d: %w", c.From, c.To, err)
		}
		x.conns[i].from, from.dialled[id] = id, false
		from.turn()
		if _, err := n.Run(n.Now.Add(dialEvery), func() bool { return false }); err != nil {
			return err
		}
	}
	shown := -1
	ok, err := n.Run(n.Now.Add(openLimit), func() bool {
		if shown != x.open {
			shown = x.open
			show(float64(x.open) / float64(len(channels)))
		}
		return x.open == len(channels)
	})
	if err == nil && !ok {
		err = fmt.Errorf("fabric: of %d connections %d are open after %v", len(channels), x.open, openLimit)
	}
	var lacks string
	for end := n.Now.Add(openLimit); err == nil && n.Now < end; {
		if lacks = x.unready(); lacks == "" {
			return nil
		}
		_, err = n.Run(n.Now.Add(settleStep), func() bool { return false })
	}
	if err == nil {
		err = fmt.Errorf("fabric: %s after %v", lacks, openLimit)
	}
	return err
}

// unready says which path is not as it should be; empty: all are.
func (x *engines) unready() string {
	for _, h := range x.list {
		for _, p := range h.e.Snapshot(x.n.Now).Peers {
			if p.Open && len(p.Paths) != x.n.opt.Lanes {
				return fmt.Sprintf("host %d has %d paths to %s, not %d", h.index, len(p.Paths), p.Name, x.n.opt.Lanes)
			}
			for _, path := range p.Paths {
				if p.Open && (path.State != "good" || path.MTU != linkMTU(x.n.opt.MTU)) {
					return fmt.Sprintf("host %d has a path to %s that is %s, with frames of %d bytes", h.index, p.Name,
						path.State, path.MTU)
				}
			}
		}
	}
	return ""
}

// takeEvent takes an event of the engine.
func (h *engineHost) takeEvent(ev *engine.Event) {
	n := h.n
	switch ev.Kind {
	case engine.EvIncoming:
		i := int(binary.BigEndian.Uint32(ev.Data))
		h.conns[i].to = ev.Conn
		h.conns[i].key = h.export(i, h.sink)
		if err := h.e.Accept(n.Now, ev.Conn, nil); err != nil {
			n.fault("host %d does not accept channel %d: %w", h.index, i, err)
		}
	case engine.EvConnected:
		if open, ours := h.dialled[ev.Conn]; ours && !open {
			h.dialled[ev.Conn] = true
			h.open++
		}
	case engine.EvClosed:
		n.fault("host %d: a connection ended: %v %s", h.index, ev.Status, ev.Text)
	case engine.EvComplete:
		if ev.Status != engine.OK {
			n.fault("host %d: flow %d ended with %v", h.index, ev.Token, ev.Status)
		}
	case engine.EvNotify:
		for note, ok := h.e.TakeNotify(ev.Conn); ok; note, ok = h.e.TakeNotify(ev.Conn) {
			n.finish(n.Flows[note.Imm])
		}
	}
}
