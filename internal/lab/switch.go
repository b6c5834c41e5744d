package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// addBridge makes a bridge that only learns addresses: no spanning tree, so ports forward at once, and no multicast
// snooping.
func addBridge(nl *netlink.Handle, name string) (netlink.Link, error) {
	a := netlink.NewLinkAttrs()
	a.Name = name
	snooping := false
	if err := nl.LinkAdd(&netlink.Bridge{LinkAttrs: a, MulticastSnooping: &snooping}); err != nil {
		return nil, explain("make bridge "+name, err)
	}
	b, err := nl.LinkByName(name)
	if err == nil {
		err = nl.LinkSetUp(b)
	}
	return b, err
}

// waitUp waits until an interface is operational. The kernel may announce a carrier as late as a second after the fact,
// but the question itself makes it hurry.
func waitUp(ctx context.Context, nl *netlink.Handle, index int) error {
	for deadline := time.Now().Add(5 * time.Second); ; {
		link, err := nl.LinkByIndex(index)
		switch {
		case err != nil:
			return err
		case link.Attrs().OperState == netlink.OperUp:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return errors.New("no carrier after 5 s")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// police gives a port the discipline for what leaves towards the host: swallow all, limit, or none. What the one before
// counted is kept.
func (k *Link) police(host int) error {
	p, nl := &k.ports[host], k.lab.router(host).nl
	var err error
	if k.medium != Wire {
		err = k.collectDrops(&k.past, host)
	}
	switch {
	case err != nil:
	case k.medium != Wire && p.cut: // a wire cuts by itself
		err = nl.QdiscReplace(blackhole(p.link))
	case k.rate > 0:
		err = nl.QdiscReplace(shaper(p.link, k.rate, k.lab.spec.MTU))
	default:
		var q netlink.Qdisc
		if q, err = k.discipline(host); err == nil && q != nil {
			err = nl.QdiscDel(q)
		}
	}
	if err != nil {
		return fmt.Errorf("queueing discipline of %s: %w", p.link.Attrs().Name, err)
	}
	return nil
}

// at is the link whose switch a host's port is plugged into.
func (k *Link) at(host int) *Link {
	if on := k.ports[host].on; on != nil {
		return on
	}
	return k
}

// Swap has the cables of two interfaces of a host, on links a and b, change places at their switches. The carriers of
// both stay up: the host notices nothing. Both links must be made of switches. A port keeps its cuts and its rate.
func (l *Lab) Swap(host, a, b int) error {
	ka, kb := l.links[a], l.links[b]
	if ka == kb {
		return nil
	}
	for _, k := range []*Link{l.links[min(a, b)], l.links[max(a, b)]} {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case k.closed:
			return ErrClosed
		case k.medium != Switch:
			return fmt.Errorf("lab: edge%d is a %s, which has no port to plug its cable into: build the lab with "+
				"Medium: lab.Switch", k.index, k.medium)
		}
	}
	pa, pb := &ka.ports[host], &kb.ports[host]
	pa.on, pb.on = kb.at(host), ka.at(host)
	for _, k := range []*Link{ka, kb} {
		if p := &k.ports[host]; p.link != nil {
			if err := l.middle.nl.LinkSetMaster(p.link, p.on.bridge); err != nil {
				return fmt.Errorf("lab: move edge%d of host %d to another switch: %w", k.index, host, err)
			}
		}
	}
	return nil
}

// discipline returns the port's root discipline if it is one of ours, else nil.
func (k *Link) discipline(host int) (netlink.Qdisc, error) {
	p := k.ports[host].link
	if p == nil {
		return nil, nil
	}
	all, err := k.lab.router(host).nl.QdiscList(p)
	if err != nil {
		return nil, err
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_ROOT && (q.Type() == "tbf" || q.Type() == "blackhole") {
			return q, nil
		}
	}
	return nil, nil
}
