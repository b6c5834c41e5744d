package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetDown takes a host's interface down. The ends of the link lose carrier, as when a cable is pulled at that host.
func (k *Link) SetDown(host int) error {
	return k.change(host, func(nl *netlink.Handle, nic netlink.Link) error { return nl.LinkSetDown(nic) })
}

// SetUp takes it up again and returns when frames pass.
func (k *Link) SetUp(host int) error {
	err := k.change(host, func(nl *netlink.Handle, nic netlink.Link) error { return nl.LinkSetUp(nic) })
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.medium == Cable || k.ports[host].link == nil {
		return nil // a cable has no carrier while the other host keeps its end down
	}
	return waitUp(context.Background(), k.lab.router(host).nl, k.ports[host].link.Attrs().Index)
}

// SetMTU changes the MTU of a host's interface alone. Longer frames to that host are then dropped silently, as by a
// real card; only a Cable tells the sender, whose send fails with ENOBUFS.
func (k *Link) SetMTU(host, mtu int) error {
	return k.change(host, func(nl *netlink.Handle, nic netlink.Link) error { return nl.LinkSetMTU(nic, mtu) })
}

// Rename gives a host's interface another name, taking it down for a moment where the kernel insists.
func (k *Link) Rename(host int, name string) error {
	return k.change(host, func(nl *netlink.Handle, nic netlink.Link) error {
		err := nl.LinkSetName(nic, name)
		if errors.Is(err, unix.EBUSY) {
			if err = nl.LinkSetDown(nic); err == nil {
				err = errors.Join(nl.LinkSetName(nic, name), nl.LinkSetUp(nic))
			}
		}
		if err == nil {
			k.nics[host].name = name
		}
		return err
	})
}

// Delete removes a host's interface, as when a card is pulled. A Cable goes with both its ends.
func (k *Link) Delete(host int) error {
	return k.change(host, func(*netlink.Handle, netlink.Link) error {
		var err error
		if k.wire != nil {
			err = k.wire.attach(host, nil)
		}
		return errors.Join(err, k.keep(host), k.remove(host))
	})
}

// Recreate makes a deleted interface again under its first name and with a new MAC address.
func (k *Link) Recreate(host int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return ErrClosed
	case k.nics[host].present:
		return fmt.Errorf("lab: %s of host %d exists: delete it first", k.nics[host].name, host)
	case k.medium == Cable:
		return k.layCable(context.Background())
	}
	return k.attach(context.Background(), host)
}

// change runs fn with a host's interface, and the link locked.
func (k *Link) change(host int, fn func(*netlink.Handle, netlink.Link) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := &k.nics[host]
	switch {
	case k.closed:
		return ErrClosed
	case !n.present:
		return fmt.Errorf("lab: edge%d of host %d was deleted: Recreate it first", k.index, host)
	}
	nl := k.lab.hosts[host].space.nl
	nic, err := nl.LinkByIndex(n.index)
	if err == nil {
		err = fn(nl, nic)
	}
	if err != nil {
		return fmt.Errorf("lab: %s of host %d: %w", n.name, host, err)
	}
	return nil
}

// Cut cuts the link in the middle, or heals it: frames vanish in all directions, and no interface notices.
func (k *Link) Cut(cut bool) error {
	for h := range k.nics {
		if err := k.CutTowards(h, cut); err != nil {
			return err
		}
	}
	return nil
}

// CutTowards cuts or heals the direction to one host only. What a shaped port had queued is lost with a cut.
func (k *Link) CutTowards(host int, cut bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.ports[host]
	switch {
	case k.closed:
		return ErrClosed
	case k.medium == Cable:
		return fmt.Errorf("lab: edge%d is a bare cable with nothing in the middle to cut: build the lab with Medium: "+
			"lab.Switch or lab.Wire", k.index)
	case p.cut == cut:
		return nil
	}
	p.cut = cut
	if k.wire != nil {
		k.wire.call(func() {
			if end := k.wire.ports[host]; end != nil {
				end.cut = cut
			}
		})
		return nil
	}
	if p.link == nil {
		return nil // takes effect when the interface is made again
	}
	return k.police(host)
}

// SetFaults changes what a Wire does to its frames from now on; the zero Faults heals it.
func (k *Link) SetFaults(f Faults) error {
	if err := f.Check(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return ErrClosed
	case k.wire == nil:
		return fmt.Errorf("lab: edge%d is a %s, which has no faults: build the lab with Medium: lab.Wire", k.index,
			k.medium)
	}
	k.wire.call(func() { k.wire.faults = f })
	return nil
}
