package peering

import (
	"time"

	"multiedge/internal/engine/op"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Hello in our own name (clause 4.1). Two hosts with one key, a virtual machine and its copy say, drive their peers
// from one to the other and hear nothing of it but each other's Hello. That proves nothing, for anybody can say it, so
// all that comes of it is that somebody is told.

// strayTime is how long after the start frames of an earlier run may come in, whose epoch and addresses nobody
// remembers.
const strayTime = 10 * time.Second

// claimPause is the least time between two EvClaim.
const claimPause = time.Minute

// claim is the latest such Hello of another host. Many such Hellos, from any number of addresses, cost no more memory.
type claim struct {
	at   mono.Time
	link int
	addr frame.Addr
	told mono.Time // of the latest EvClaim; zero: there was none
}

// claimed takes a Hello with our identity. Ours come back where the network has a loop: they have our epoch, or come,
// from an earlier run, from an address of ours. Each shard is told; the first counts.
func (e *Endpoint) claimed(now mono.Time, i int, addr frame.Addr, epoch uint64) {
	if e.cfg.Shard != 0 || epoch == e.cfg.Epoch || now.Sub(e.began) < strayTime || e.ownAddr(addr) {
		return
	}
	e.count.Trust.IdentityClaims++
	c := &e.hellos.claim
	c.at, c.link, c.addr = now, i, addr
	if c.told == 0 || now.Sub(c.told) >= claimPause {
		c.told = now
		e.emit(op.Event{Kind: op.EvClaim, Link: uint8(i), Text: addr.String()})
	}
}

// ownMAC reports whether a link of ours, up or not, has that address.
func (e *Endpoint) ownAddr(addr frame.Addr) bool {
	for i := range e.net.Links {
		if l := &e.net.Links[i]; l.Name != "" && l.Addr == addr {
			return true
		}
	}
	return false
}
