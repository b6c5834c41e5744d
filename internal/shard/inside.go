package shard

import (
	"slices"

	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// Inside is a shard as the tests of whole daemons see it, which are in another package and look for what no client
// could. Nothing else uses it. Methods without a comment to the contrary may be called by any goroutine.
type Inside struct{ *Shard }

// Jobs is how many functions wait in the mailbox.
func (i Inside) Jobs() int { return int(i.box.count.Load()) }

// Pings is how many pings are under way.
func (i Inside) Pings() (n int) {
	i.Do(func(mono.Time) { n = len(i.pings) })
	return n
}

// Lent is how many links are lent to receivers.
func (i Inside) Lent() (n int) {
	i.Do(func(mono.Time) {
		for _, l := range i.links.active {
			if l.lent != nil {
				n++
			}
		}
	})
	return n
}

// Unread is how many messages wait for the client that offers a service.
func (i Inside) Unread(service string) (n int) {
	i.Do(func(mono.Time) {
		if c := i.clients.services[service]; c != nil {
			n = len(c.msgs) + c.out.length()
		}
	})
	return n
}

// Queue lets frames wait for the first link, each with its number in its head and the
// given bytes behind that.
func (i Inside) Queue(bulk [][]byte) {
	i.Do(func(mono.Time) {
		l := i.links.active[0]
		for k, b := range bulk {
			head := make([]byte, 64)
			head[0] = byte(k)
			l.unsent = append(l.unsent, linkdrv.TxFrame{Head: head, Bulk: b})
		}
		i.blocked(l, true)
	})
}

// Queued returns the numbers of the frames that wait for the first link, and how many were discarded, and drops them.
func (i Inside) Queued() (numbers []int, discarded uint64) {
	i.Do(func(mono.Time) {
		l := i.links.active[0]
		for _, f := range l.unsent {
			numbers = append(numbers, int(f.Head[0]))
		}
		discarded = l.discards
		i.dropUnsent(l)
	})
	return numbers, discarded
}

// Memory returns the bytes of a region of the client in a slot.
func (i Inside) Memory(slot int, region uint32) (b []byte) {
	i.Do(func(mono.Time) { b = i.clients.list[slot].regions.get(region).Mem.Bytes() })
	return b
}

// Clients counts the clients, dying ones too.
func (i Inside) Clients() (n int) {
	i.Do(func(mono.Time) {
		n = len(slices.DeleteFunc(slices.Clone(i.clients.list), func(c *Client) bool { return c == nil }))
	})
	return n
}

// Evict evicts the client in a slot.
func (i Inside) Evict(slot int) (c *Client) {
	i.Do(func(mono.Time) {
		c = i.clients.list[slot]
		i.evict(c, "test")
	})
	return c
}

// Kept is how many regions of a client there are, and how many spaces of the exchange.
func (i Inside) Kept(c *Client) (regions, spaces int) {
	i.Do(func(mono.Time) { regions, spaces = c.regions.n, len(i.exchange.spaces) })
	return regions, spaces
}

// Link describes the first link.
func (i Inside) Link() (info linkdrv.Info) {
	i.Do(func(mono.Time) { info = i.links.active[0].info })
	return info
}
