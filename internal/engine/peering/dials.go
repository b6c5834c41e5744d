package peering

import (
	"encoding/hex"
	"fmt"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Dials and the peers that they are for: when a peer is heard they come to its session.

// answer gives the dials that wait for peer p, as far as it was heard, to its session. Each dial comes to a session
// once: a Hello costs the same however many wait.
func (e *Endpoint) answer(now mono.Time, p *peer) {
	if !e.ops.AnyWished() {
		return
	}
	var id [2 * len(op.NodeID{})]byte
	hex.Encode(id[:], p.who.ID[:])
	for _, w := range [...]op.Wish{op.WishFor(p.who.Name, 0), {Peer: string(id[:])}} {
		for w.Tried = range wire.MaxShards {
			l := e.ops.Wished(w)
			if l == nil {
				continue
			}
			to := e.findPeer(l.First().Wish().Peer, w.Tried)
			for to != nil && l.First() != nil && e.unconfirmed(to.who.ID) < e.unconfirmedMost() {
				e.attachDial(now, l.First(), to)
			}
		}
	}
}

// attachDial gives a dial to the session with p.
func (e *Endpoint) attachDial(now mono.Time, c *op.Conn, p *peer) {
	c.AskBy(&e.dialSession(now, p, c.Scheduler()).Ops)
}

// tryDial attaches a dial to its session if the peer is known, and has confirmed the ends of others.
func (e *Endpoint) tryDial(now mono.Time, c *op.Conn) {
	w := c.Wish()
	if p := e.findPeer(w.Peer, w.Tried); p != nil && e.unconfirmed(p.who.ID) < e.unconfirmedMost() {
		e.attachDial(now, c, p)
	} else {
		e.ops.Await(c)
	}
}

// mostGreetings is the least time between two restarts of the Hello intervals for dials to nodes that were not heard.
// It bounds what such dials make us broadcast.
const mostGreetings = 100 * time.Millisecond

// lookFor says Hello to everybody, for a dial to a node that was not heard.
func (e *Endpoint) lookFor(now mono.Time) {
	if now >= e.hellos.lookedFor.Add(mostGreetings) {
		e.hellos.lookedFor = now
		e.greet(now)
	}
}

// hintFor tells dials that wait for a node of that name why this one is not it. Names of strangers prove nothing, so
// that is all that comes of it.
func (e *Endpoint) hintFor(h *wire.Hello) {
	if !e.ops.AnyWished() {
		return
	}
	hint := "a node that calls itself so is heard, with another key than the one authorised here; compare edgectl " +
		"key show there with edgectl peers list here"
	if h.Flags&wire.HelloSecure == 0 {
		hint = "a node that calls itself so is heard, and it talks plaintext only: " +
			"give both nodes the same setting of security"
	}
	w := op.WishFor(string(h.Name), 0)
	for w.Tried = range wire.MaxShards {
		if l := e.ops.Wished(w); l != nil {
			l.Hint = hint
		}
	}
}

// mostExpired is how many dials one call of HandleTimeout ends.
const mostExpired = 64

// expireDials ends the dials that nobody answered in time.
func (e *Endpoint) expireDials(now mono.Time) {
	for range mostExpired {
		c := e.ops.ExpiredDial(now)
		if c == nil {
			return
		}
		e.dialExpired(now, c)
	}
}

// dialExpired ends a dial that nobody answered in time, saying how far it came.
func (e *Endpoint) dialExpired(now mono.Time, c *op.Conn) {
	s, w := e.sessionOf(c), c.Wish()
	switch {
	case s == nil:
		st := abi.StatusPeerUnknown
		text := fmt.Sprintf("no node %q was heard on any link; is its daemon running and on the same Ethernet segment?",
			w.Peer)
		if e.anyIP() {
			text += " Over IP, where is it: edgectl peers add KEY NAME --endpoint HOST:PORT"
		}
		if p := e.findPeer(w.Peer, w.Tried); p != nil {
			st = abi.StatusTimeout
			text = fmt.Sprintf("node %q has not confirmed the ends of %d earlier connections", w.Peer,
				e.unconfirmed(p.who.ID))
		}
		if hint := e.ops.Wished(op.WishFor(w.Peer, w.Tried)).Hint; hint != "" {
			text = fmt.Sprintf("node %q: %s", w.Peer, hint)
		}
		c.Finish(now, st, text)
	case s.State != SessionOpen:
		text := fmt.Sprintf("node %q was heard but does not answer", w.Peer)
		if at := e.askedAt(s.Peer); at != "" {
			text = fmt.Sprintf("node %q does not answer at %s: is its daemon running there, and do firewalls and "+
				"security groups let UDP to that port pass?", w.Peer, at)
			if s.Peer.Past.Trouble == NoTrouble {
				s.Peer.Past.Troubled(now, TroubleNoDatagram)
			}
			e.forgetShards(s.Peer.who.ID)
		}
		if s.setup.hint != "" {
			text += ": " + s.setup.hint
		}
		if s.Peer.sealed && e.cfg.Secure == nil {
			text += ": it talks encrypted only, and this node plaintext; give both the same setting of security"
		}
		if s.Peer.Past.Trouble == NoTrouble {
			s.Peer.Past.Troubled(now, TroubleNoAnswer)
		}
		c.Finish(now, abi.StatusPeerDown, text)
	case !s.Paths.Reachable():
		c.Abort(now, abi.StatusTimeout,
			fmt.Sprintf("node %q does not answer on any link now; see the paths to it: edgectl peer", w.Peer))
	default:
		c.Abort(now, abi.StatusTimeout,
			fmt.Sprintf("node %q offers service %q but did not accept in time", w.Peer, c.Service()))
	}
}

// Dial asks for a connection to a service of a peer, named by node name or identity in hexadecimal. The answer is
// EvConnected, or EvClosed with the reason.
func (e *Endpoint) Dial(now mono.Time, peer, service string, o op.DialOptions) (op.ConnID, error) {
	c, err := e.ops.NewDial(now, peer, service, o)
	if err != nil {
		return 0, err
	}
	if !e.authorised(peer) {
		c.Finish(now, abi.StatusStranger,
			fmt.Sprintf("no authorised peer is called %q; authorise it: edgectl peers add "+
				"KEY %s", peer, peer))
		return c.ID, nil
	}
	if e.tryDial(now, c); c.S == nil {
		e.lookFor(now)
	}
	return c.ID, nil
}

// sessionOf returns the session of a connection; nil: it has none.
func (e *Endpoint) sessionOf(c *op.Conn) *Session {
	if c.S == nil {
		return nil
	}
	return e.Sessions.ByNumber[c.S.Number]
}

// TryNextShard asks the next shard of the peer, if there is one, for the service that this one does not offer.
func (e *Endpoint) TryNextShard(now mono.Time, c *op.Conn) bool {
	if c.Wish().Tried >= int(e.sessionOf(c).Peer.last) {
		return false
	}
	c.ToNextShard()
	e.tryDial(now, c)
	return true
}
