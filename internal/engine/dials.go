package engine

import (
	"container/heap"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"multiedge/internal/engine/peering"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Pending dials. A frame, forged or not, costs work only for the dials that it answers. Each dial is in the heap of
// deadlines and in one list: that of all dials for the same peer until the peer is heard, then that of the session that
// carries them.

// ErrDials is wrapped by Dial when as many wait as Config.MaxDials allows.
var ErrDials = errors.New("engine: dials that wait")

// dialTable is every dial that waits. Each is in byDeadline; before its peer was heard it is in the list of its wish
// too.
type dialTable struct {
	byDeadline deadlines
	wishes     map[wish]*wished
	lookedFor  mono.Time // a dial had everybody greeted
	work       work
}

// dialRequest is what a connection needs while it is being asked for or answered.
type dialRequest struct {
	deadline    mono.Time
	peer        string
	service     string
	data        []byte // private data to send
	sched       string
	tried       int // shards of the peer that do not offer the service
	place       dialPlace
	ping        bool // DialOptions.Ping
	unconfirmed bool // in connIncoming or connLast: counted by the session
}

// dialList is a FIFO of connections that are being dialled; one leaves it from anywhere.
type dialList struct {
	head, tail *conn
	n          int
}

// dialPlace is where a connection stands that is being dialled.
type dialPlace struct {
	list       *dialList // nil: not dialled, or not any more
	prev, next *conn
	at         int // in the heap of deadlines
}

func (l *dialList) push(c *conn) {
	c.dial.place.list, c.dial.place.prev, c.dial.place.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.dial.place.next = c
	} else {
		l.head = c
	}
	l.tail = c
	l.n++
}

func (l *dialList) remove(c *conn) {
	d := &c.dial.place
	if d.prev != nil {
		d.prev.dial.place.next = d.next
	} else {
		l.head = d.next
	}
	if d.next != nil {
		d.next.dial.place.prev = d.prev
	} else {
		l.tail = d.prev
	}
	d.list, d.prev, d.next = nil, nil, nil
	l.n--
}

// wish is what dials that wait for a peer to be heard ask for: its name or identity, and how many of its shards do not
// offer the service.
type wish struct {
	peer  string
	tried int
}

// wished are the dials of one wish.
type wished struct {
	dialList
	hint string // why a node that was heard is not the one
}

// wishFor is the wish of a dial; identities are in lower case.
func wishFor(peer string, tried int) wish {
	if _, ok := parseNodeID(peer); ok {
		peer = strings.ToLower(peer)
	}
	return wish{peer, tried}
}

// deadlines is the heap of those that are being dialled.
type deadlines []*conn

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].dial.deadline < h[j].dial.deadline }
func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dial.place.at, h[j].dial.place.at = i, j
}

func (h *deadlines) Push(x any) {
	c := x.(*conn)
	c.dial.place.at = len(*h)
	*h = append(*h, c)
}

func (h *deadlines) Pop() any {
	old := *h
	n := len(old) - 1
	c := old[n]
	old[n] = nil
	*h = old[:n]
	return c
}

// work counts what was looked at for dials, for tests.
type work struct{ wishes, dials uint64 }

// await puts a dial in the list of those whose peer was not heard.
func (e *Endpoint) await(c *conn) {
	w := wishFor(c.dial.peer, c.dial.tried)
	l := e.dials.wishes[w]
	if l == nil {
		l = &wished{}
		e.dials.wishes[w] = l
	}
	l.push(c)
}

// leaveList takes a dial out of the list it is in.
func (e *Endpoint) leaveList(c *conn) {
	l := c.dial.place.list
	if l == nil {
		return
	}
	l.remove(c)
	if w := wishFor(c.dial.peer, c.dial.tried); c.s == nil && l.n == 0 {
		delete(e.dials.wishes, w)
	}
}

// dropDial notes that a connection is not being dialled any more.
func (e *Endpoint) dropDial(c *conn) {
	if c.dial.place.list != nil {
		e.leaveList(c)
		heap.Remove(&e.dials.byDeadline, c.dial.place.at)
	}
}

// answer gives the dials that wait for peer p, as far as it was heard, to its session. Each dial comes to a session
// once: a Hello costs the same however many wait.
func (e *Endpoint) answer(now mono.Time, p *peer) {
	if len(e.dials.wishes) == 0 {
		return
	}
	var id [2 * len(NodeID{})]byte
	hex.Encode(id[:], p.id[:])
	for _, w := range [...]wish{wishFor(p.name, 0), {peer: string(id[:])}} {
		for w.tried = range wire.MaxShards {
			e.dials.work.wishes++
			l := e.dials.wishes[w]
			if l == nil {
				continue
			}
			to := e.findPeer(l.head.dial.peer, w.tried)
			for to != nil && l.n > 0 && e.unconfirmed(to.id) < e.unconfirmedMost() {
				e.attachDial(now, l.head, to)
			}
		}
	}
}

// attachDial gives a dial to the session with p.
func (e *Endpoint) attachDial(now mono.Time, c *conn, p *peer) {
	e.dials.work.dials++
	c.join(e.dialSession(now, p, c.dial.sched))
	if c.s.state == sessionOpen {
		c.requestOpen()
	}
}

// join makes a dial one of a session.
func (c *conn) join(s *session) {
	c.e.leaveList(c)
	c.attach(s)
	s.members.dials.push(c)
}

// tryDial attaches a dial to its session if the peer is known, and has confirmed the ends of others.
func (e *Endpoint) tryDial(now mono.Time, c *conn) {
	if p := e.findPeer(c.dial.peer, c.dial.tried); p != nil && e.unconfirmed(p.id) < e.unconfirmedMost() {
		e.attachDial(now, c, p)
	} else if c.dial.place.list == nil {
		e.await(c)
	}
}

// mostGreetings is the least time between two restarts of the Hello intervals for dials to nodes that were not heard.
// It bounds what such dials make us broadcast.
const mostGreetings = 100 * time.Millisecond

// lookFor says Hello to everybody, for a dial to a node that was not heard.
func (e *Endpoint) lookFor(now mono.Time) {
	if now >= e.dials.lookedFor.Add(mostGreetings) {
		e.dials.lookedFor = now
		e.greet(now)
	}
}

// hintFor tells dials that wait for a node of that name why this one is not it. Names of strangers prove nothing, so
// that is all that comes of it.
func (e *Endpoint) hintFor(h *wire.Hello) {
	if len(e.dials.wishes) == 0 {
		return
	}
	hint := "a node that calls itself so is heard, with another key than the one authorised here; compare edgectl " +
		"key show there with edgectl peers list here"
	if h.Flags&wire.HelloSecure == 0 {
		hint = "a node that calls itself so is heard, and it talks plaintext only: " +
			"give both nodes the same setting of security"
	}
	w := wishFor(string(h.Name), 0)
	for w.tried = range wire.MaxShards {
		e.dials.work.wishes++
		if l := e.dials.wishes[w]; l != nil {
			l.hint = hint
		}
	}
}

// mostExpired is how many dials one call of HandleTimeout ends.
const mostExpired = 64

// expireDials ends the dials that nobody answered in time.
func (e *Endpoint) expireDials(now mono.Time) {
	for n := 0; n < mostExpired && len(e.dials.byDeadline) > 0 && now >= e.dials.byDeadline[0].dial.deadline; n++ {
		e.dialExpired(now, e.dials.byDeadline[0])
	}
}

// dialExpired ends a dial that nobody answered in time, saying how far it came.
func (e *Endpoint) dialExpired(now mono.Time, c *conn) {
	e.dials.work.dials++
	switch {
	case c.s == nil:
		st := StatusPeerUnknown
		text := fmt.Sprintf("no node %q was heard on any link; is its daemon running and on the same Ethernet segment?",
			c.dial.peer)
		if p := e.findPeer(c.dial.peer, c.dial.tried); p != nil {
			st = StatusTimeout
			text = fmt.Sprintf("node %q has not confirmed the ends of %d earlier connections", c.dial.peer,
				e.unconfirmed(p.id))
		}
		if hint := e.dials.wishes[wishFor(c.dial.peer, c.dial.tried)].hint; hint != "" {
			text = fmt.Sprintf("node %q: %s", c.dial.peer, hint)
		}
		c.finish(now, st, text)
	case c.s.state != sessionOpen:
		text := fmt.Sprintf("node %q was heard but does not answer", c.dial.peer)
		if c.s.setup.hint != "" {
			text += ": " + c.s.setup.hint
		}
		if c.s.peer.sealed && e.cfg.Secure == nil {
			text += ": it talks encrypted only, and this node plaintext; give both the same setting of security"
		}
		if c.s.peer.past.Trouble == peering.NoTrouble {
			c.s.peer.past.Troubled(now, peering.TroubleNoAnswer)
		}
		c.finish(now, StatusPeerDown, text)
	case !c.s.reachable():
		c.abort(now, StatusTimeout,
			fmt.Sprintf("node %q does not answer on any link now; see the paths to it: edgectl peer", c.dial.peer))
	default:
		c.abort(now, StatusTimeout,
			fmt.Sprintf("node %q offers service %q but did not accept in time", c.dial.peer, c.dial.service))
	}
}
