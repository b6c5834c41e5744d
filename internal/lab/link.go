package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/vishvananda/netlink"

	"multiedge/internal/ethtool"
	"multiedge/linkdrv"
)

// Link joins one interface of every host.
type Link struct {
	lab    *Lab
	index  int
	medium Medium
	rate   uint64 // bytes per second, 0 is unlimited

	mu     sync.Mutex
	nics   []nic  // by host
	ports  []port // by host; unused by a Cable
	bridge netlink.Link
	wire   *wire
	past   Counters // of disciplines and ports that were replaced
	closed bool
}

// nic is a host's interface.
type nic struct {
	name       string
	index      int
	generation byte // counts up when it is made anew
	present    bool
}

// port is the other end of a nic, in the lab's middle namespace.
type port struct {
	link netlink.Link
	cut  bool
	on   *Link // whose bridge it is plugged into, of a Switch; nil: its own link's
}

func newLink(l *Lab, index int) *Link {
	k := &Link{lab: l, index: index, rate: l.rates[index], medium: l.spec.medium(l.rates[index])}
	k.nics = make([]nic, l.spec.Hosts)
	k.ports = make([]port, l.spec.Hosts)
	return k
}

// Name is the name of a host's interface on the link, "" if it was deleted.
func (k *Link) Name(host int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.nics[host].present {
		return ""
	}
	return k.nics[host].name
}

// MAC is the address of a host's interface on the link. It is locally administered and tells link and host.
func (k *Link) MAC(host int) net.HardwareAddr {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mac(host)
}

func (k *Link) mac(host int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'm', 'e', k.nics[host].generation, byte(k.index), byte(host)}
}

// Medium is what the link is made of.
func (k *Link) Medium() Medium { return k.medium }

// Rate is its limit in bytes per second, 0 if there is none.
func (k *Link) Rate() uint64 { return k.rate }

func (k *Link) build(ctx context.Context) (err error) {
	switch k.medium {
	case Cable:
		return k.layCable(ctx)
	case Switch:
		if k.bridge, err = addBridge(k.lab.middle.nl, fmt.Sprintf("sw%d", k.index)); err != nil {
			return err
		}
	case Wire:
		if k.wire, err = newWire(k.lab.spec.Seed, k.index, k.lab.spec.Hosts, k.lab.spec.MTU,
			k.lab.spec.Faults); err != nil {
			return err
		}
	}
	for h := range k.nics {
		if err := k.attach(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// layCable makes a veth pair between the two hosts.
func (k *Link) layCable(ctx context.Context) error {
	for h := range k.nics {
		k.renew(h)
	}
	a, b := k.lab.hosts[0].space, k.lab.hosts[1].space
	if err := k.addVeth(a, k.nics[0].name, k.mac(0), b, 1); err != nil {
		return err
	}
	for h := range k.nics {
		if err := k.configure(h); err != nil {
			return err
		}
	}
	for h, n := range k.nics {
		if err := waitUp(ctx, k.lab.hosts[h].space.nl, n.index); err != nil {
			return fmt.Errorf("%s of host %d: %w", n.name, h, err)
		}
	}
	return nil
}

// attach makes a host's interface and connects it to the switch or wire.
func (k *Link) attach(ctx context.Context, host int) error {
	k.renew(host)
	middle := k.lab.router(host)
	name := fmt.Sprintf("l%dh%d", k.index, host)
	if err := k.addVeth(middle, name, nil, k.lab.hosts[host].space, host); err != nil {
		return err
	}
	if err := k.configure(host); err != nil {
		return err
	}
	p, err := middle.nl.LinkByName(name)
	if err != nil {
		return err
	}
	k.ports[host].link = p
	if err := middle.nl.LinkSetUp(p); err != nil {
		return err
	}
	if err := waitUp(ctx, middle.nl, p.Attrs().Index); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := k.police(host); err != nil {
		return err
	}
	if k.medium == Routed {
		return k.route(host)
	}
	if k.medium == Switch {
		return middle.nl.LinkSetMaster(p, k.at(host).bridge) // last: a port that is up when it joins forwards at once
	}
	return k.openPort(host, name)
}

// openPort hands the wire a driver on its end towards a host.
func (k *Link) openPort(host int, name string) error {
	o := linkdrv.Options{EtherType: linkdrv.EtherTypeAll, Promiscuous: true, Qdisc: k.rate > 0}
	if k.lab.spec.MTU > 2048 {
		o.RingSlots = min(256, max(64, 4<<20/k.lab.spec.MTU)) // about what a cache holds
	}
	var drv linkdrv.Driver
	err := k.lab.middle.do(func() (err error) {
		drv, err = linkdrv.Open(name, o)
		return err
	})
	if err != nil {
		return err
	}
	return k.wire.attach(host, &wirePort{drv: drv, cut: k.ports[host].cut})
}

// renew gives a host's interface its first name and a fresh address.
func (k *Link) renew(host int) {
	k.nics[host] = nic{name: fmt.Sprintf("edge%d", k.index), generation: k.nics[host].generation + 1}
}

// addVeth makes a veth pair: name in one namespace and the interface of a host in the other.
func (k *Link) addVeth(in *space, name string, mac net.HardwareAddr, peer *space, host int) error {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU, a.HardwareAddr = name, k.lab.spec.MTU, mac
	v := netlink.NewVeth(a)
	v.PeerName, v.PeerHardwareAddr, v.PeerNamespace = k.nics[host].name, k.mac(host), netlink.NsFd(peer.fd)
	if err := in.nl.LinkAdd(v); err != nil {
		return explain("make veth pair "+name, err)
	}
	return nil
}

// plainFrames turns transmit offloads off: what passes through user space must be complete frames with checksums, not
// the super-frames of up to 64 KiB that TCP hands to a veth.
var plainFrames = map[string]bool{
	"tx-checksum-ip-generic":       false,
	"tx-checksum-sctp":             false,
	"tx-tcp-segmentation":          false,
	"tx-tcp6-segmentation":         false,
	"tx-tcp-ecn-segmentation":      false,
	"tx-tcp-mangleid-segmentation": false,
	"tx-generic-segmentation":      false,
}

// configure addresses a host's new interface and sets it up.
func (k *Link) configure(host int) error {
	n, s := &k.nics[host], k.lab.hosts[host].space
	link, err := s.nl.LinkByName(n.name)
	if err != nil {
		return err
	}
	n.index, n.present = link.Attrs().Index, true
	if err := k.lab.addAddress(s, link, k.lab.address(k.index, host)); err != nil {
		return err
	}
	switch {
	case k.lab.spec.NoOffloads:
		err = s.do(func() error { return withoutOffloads(n.name) })
	case k.medium == Wire:
		err = s.do(func() error { return ethtool.Change(n.name, plainFrames) })
	}
	if err != nil {
		return err
	}
	return s.nl.LinkSetUp(link)
}

// close removes the link from hosts and middle.
func (k *Link) close() (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	if k.wire != nil {
		err = k.wire.close()
	}
	for h := range k.nics {
		err = errors.Join(err, k.remove(h))
	}
	if k.bridge != nil {
		err = errors.Join(err, k.lab.middle.nl.LinkDel(k.bridge))
	}
	return err
}

// remove deletes a host's interface and with it the other end.
func (k *Link) remove(host int) error {
	n := &k.nics[host]
	if !n.present {
		return nil
	}
	n.present = false
	if k.medium == Cable {
		for h := range k.nics {
			k.nics[h].present = false
		}
	}
	k.ports[host].link = nil
	nl := k.lab.hosts[host].space.nl
	link, err := nl.LinkByIndex(n.index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil // somebody in the host deleted it
	}
	if err == nil {
		err = nl.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("lab: delete %s of host %d: %w", n.name, host, err)
	}
	return nil
}
