package op

import (
	"math"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Exported memory that the peer is told of by name (clause 5.6).

// exports is the memory that a connection told the peer of, and what the peer told.
type exports struct {
	adverts map[uint32]*advert  // ours by number, and withdrawals, until the peer has acknowledged them; nil: none
	number  uint64              // of the next
	queue   queue.Queue[uint32] // to send, or their withdrawals
	told    span.Set            // numbers of the peer's adverts that came, themselves or their withdrawals
	taken   span.Set            // those of them that were withdrawn, as many as are remembered
}

type advert struct {
	Advert
	withdrawn bool
}

// Advertise tells the peer of exported memory under a name, and returns the number by which Withdraw takes it back
// (clause 5.6). Nothing is remembered of it once the peer knows.
func (e *Endpoint) Advertise(now mono.Time, id ConnID, a Advert) (number uint32, ok bool) {
	c := e.conn(id)
	if c == nil || c.state != connOpen || len(a.Name) > MaxServiceName || c.exports.number > math.MaxUint32 {
		return 0, false
	}
	number = uint32(c.exports.number)
	c.exports.number++
	c.say(number, &advert{Advert: a})
	return number, true
}

// Withdraw takes the Advertise of a key back, which had that number.
func (e *Endpoint) Withdraw(now mono.Time, id ConnID, key regmem.Key, number uint32) {
	if c := e.conn(id); c != nil {
		c.endRedirects(abi.StatusKey, func(r *redirect) bool { return r.Key == key })
		if uint64(number) < c.exports.number {
			c.say(number, &advert{Advert: Advert{Key: key}, withdrawn: true})
		}
	}
}

// say queues an advert, or its withdrawal in its place.
func (c *Conn) say(number uint32, a *advert) {
	if c.exports.adverts == nil {
		c.exports.adverts = map[uint32]*advert{}
	}
	c.exports.adverts[number] = a
	c.exports.queue.Push(number)
	c.wake()
}

// advertAcked forgets an advert that the peer has, or a withdrawal.
func (c *Conn) advertAcked(number uint32, withdrawal bool) {
	if a := c.exports.adverts[number]; a == nil || a.withdrawn != withdrawal {
		return
	}
	delete(c.exports.adverts, number)
	if len(c.exports.adverts) == 0 {
		c.exports.adverts, c.exports.queue = nil, queue.Queue[uint32]{} // what is queued was acknowledged
	}
}

func (c *Conn) advert(w *build.Frame) bool {
	i := *c.exports.queue.Front()
	a := c.exports.adverts[i]
	if a == nil {
		c.exports.queue.Pop()
		return true
	}
	g := &w.Seg
	withdrawal := uint64(0)
	*g = wire.Segment{Kind: wire.KindAdvert, Perm: uint8(a.Perm), Conn: c.remote, Op: i, Key: uint64(a.Key),
		Size: a.Size, Name: []byte(a.Name)}
	if a.withdrawn {
		withdrawal = 1
		*g = wire.Segment{Kind: wire.KindWithdraw, Conn: c.remote, Op: i, Key: uint64(a.Key)}
	}
	if w.Room < g.Len() {
		return false
	}
	c.exports.queue.Pop()
	w.Small(g)
	w.Note(build.RecAdvert, uint32(c.ID), 0, uint64(i), withdrawal, false)
	return true
}

// onAdvert takes an Advert or a Withdraw. Frames overtake each other and come twice: what was taken back, or told
// before, is not told, and what was taken back is so once (clause 5.6).
func (c *Conn) onAdvert(g *wire.Segment) bool {
	n := uint64(g.Op)
	known := c.exports.told.Covers(n, n+1)
	if !known && !c.fits(&c.exports.told, n, n+1) {
		c.e.Count.Reject.RejectedNoRoom++
		return false
	}
	c.add(&c.exports.told, n, n+1)
	if g.Kind == wire.KindAdvert {
		if !known {
			c.e.Emit(Event{Kind: EvAdvert, Conn: c.ID, Advert: Advert{Name: string(g.Name), Key: regmem.Key(g.Key),
				Size: g.Size, Perm: regmem.Perm(g.Perm), Number: g.Op}})
		}
		return true
	}
	if c.exports.taken.Covers(n, n+1) {
		return true
	}
	if c.fits(&c.exports.taken, n, n+1) { // else it may be told twice, which is better than never
		c.add(&c.exports.taken, n, n+1)
	}
	if known {
		c.e.Emit(Event{Kind: EvWithdrawn, Conn: c.ID, Advert: Advert{Key: regmem.Key(g.Key)}})
	}
	return true
}
