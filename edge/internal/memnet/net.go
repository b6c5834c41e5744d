// Package memnet is a network in memory: links on which every node sees every other, as linkdrv.Driver.
package memnet

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// Of every link.
const (
	mtu   = 9000
	slots = 256
)

// Net is a network. The zero Net is ready.
type Net struct {
	mu    sync.Mutex
	ports []*port
	next  int
}

// Plug makes a link, which reaches every other of the network until it is closed.
func (n *Net) Plug(name string) (linkdrv.Driver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	p, err := newPort(n, name, macOf(n.next))
	if err != nil {
		return nil, err
	}
	for _, q := range n.ports {
		mine, theirs := linktest.Pair(mtu, slots)
		if err := errors.Join(p.join(q, mine), q.join(p, theirs)); err != nil {
			n.drop(p)
			return nil, err
		}
	}
	n.ports = append(n.ports, p)
	return p, nil
}

func macOf(n int) net.HardwareAddr {
	mac := net.HardwareAddr{0x02, 0x45, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(mac[2:], uint32(n))
	return mac
}

// unplug removes a port and its links.
func (n *Net) unplug(p *port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(p)
}

func (n *Net) drop(p *port) {
	kept := n.ports[:0]
	for _, q := range n.ports {
		if q != p {
			q.noteGone(p)
			p.noteGone(q)
			kept = append(kept, q)
		}
	}
	clear(n.ports[len(kept):])
	n.ports = kept
}
