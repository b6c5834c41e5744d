package lab

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Counters is what a link did since the lab was built, all directions together. On a Wire between two hosts
//
//	Received + Duplicated = Delivered + Lost + Cut + Overflow + frames held back
//
// and what reaches an end that is down is Overflow, too. A kernel Switch has no faults; of a Cable only Received and
// Delivered are known.
type Counters struct {
	Received  uint64 // frames that came from the hosts
	Delivered uint64 // frames handed to the hosts, copies included
	Lost      uint64 // injected: frames that were dropped
	Corrupted uint64 // injected: copies delivered with a bit flipped
	// of Corrupted: with the bit in the headers around a frame that travels in a datagram, where it may change nothing
	// or be noticed by nobody
	Outer      uint64
	Duplicated uint64 // injected: copies delivered besides the first
	Reordered  uint64 // injected: frames held back
	Cut        uint64 // frames swallowed by Link.Cut
	Overflow   uint64 // frames the queue of a shaped port, or the memory for delayed frames, had no room for
	Missed     uint64 // frames a Wire was too slow to receive; not part of Received
}

// fields are all counters, in their order.
func (c *Counters) fields() []*uint64 {
	return []*uint64{&c.Received, &c.Delivered, &c.Lost, &c.Corrupted, &c.Outer, &c.Duplicated, &c.Reordered, &c.Cut,
		&c.Overflow, &c.Missed}
}

// Plus adds what another link did.
func (c Counters) Plus(o Counters) Counters {
	for i, v := range o.fields() {
		*c.fields()[i] += *v
	}
	return c
}

// Less is what was done since the counters were was.
func (c Counters) Less(was Counters) Counters {
	for i, v := range was.fields() {
		*c.fields()[i] -= *v
	}
	return c
}

// Injected is how many frames were tampered with, other than by a cut.
func (c *Counters) Injected() uint64 { return c.Lost + c.Corrupted + c.Duplicated + c.Reordered }

// Counters returns what the link did so far. It fails only if the kernel's own counters cannot be read.
func (k *Link) Counters() (Counters, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return Counters{}, ErrClosed
	case k.wire != nil:
		return k.wire.counters(), nil // it also counts what its shapers refuse
	}
	c := k.past
	for h := range k.nics {
		if err := k.collect(&c, h); err != nil {
			return c, err
		}
	}
	return c, nil
}

// keep saves the kernel's counters of a host's end before it is deleted.
func (k *Link) keep(host int) error {
	if k.medium == Cable {
		return errors.Join(k.collect(&k.past, 0), k.collect(&k.past, 1))
	}
	return k.collect(&k.past, host)
}

// collect adds what the kernel counted at a host's end of a cable or switch.
func (k *Link) collect(c *Counters, host int) error {
	if !k.nics[host].present || k.medium == Wire {
		return nil
	}
	if k.medium == Cable {
		s, err := statistics(k.lab.hosts[host].space.nl, k.nics[host].index)
		c.Received += s.TxPackets
		c.Delivered += s.RxPackets
		return err
	}
	if k.ports[host].link == nil {
		return nil
	}
	s, err := statistics(k.lab.router(host).nl, k.ports[host].link.Attrs().Index)
	c.Received += s.RxPackets
	c.Delivered += s.TxPackets
	return errors.Join(err, k.collectDrops(c, host))
}

func statistics(nl *netlink.Handle, index int) (netlink.LinkStatistics, error) {
	link, err := nl.LinkByIndex(index)
	if err != nil || link.Attrs().Statistics == nil {
		return netlink.LinkStatistics{}, err
	}
	return *link.Attrs().Statistics, nil
}

// collectDrops adds what a port's discipline dropped.
func (k *Link) collectDrops(c *Counters, host int) error {
	q, err := k.discipline(host)
	if err != nil || q == nil || q.Attrs().Statistics == nil || q.Attrs().Statistics.Queue == nil {
		return err
	}
	drops := uint64(q.Attrs().Statistics.Queue.Drops)
	if q.Type() == "tbf" {
		c.Overflow += drops
	} else {
		c.Cut += drops
	}
	return nil
}
