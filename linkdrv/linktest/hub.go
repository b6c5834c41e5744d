package linktest

import (
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"

	"multiedge/linkdrv"
)

// Hub joins ports that are links of one host to itself: a frame goes to the port whose address it is for, which may be
// the one that sends it. Ports are made before they are used and live as long as the Hub.
type Hub struct {
	mtu, slots int
	ports      atomic.Pointer[[]*Port]
}

// NewHub returns a hub without ports, whose frames carry up to mtu bytes after the Ethernet header.
func NewHub(mtu, slots int) *Hub {
	h := &Hub{mtu: mtu, slots: slots}
	h.ports.Store(&[]*Port{})
	return h
}

// Port is a Driver. What it is sent waits in its slots, as an End's does.
type Port struct {
	hub *Hub
	End
}

var _ linkdrv.Driver = (*Port)(nil)

// Port adds one. One goroutine at a time may do so.
func (h *Hub) Port(name string) *Port {
	old := *h.ports.Load()
	mac := net.HardwareAddr{0x02, 0x4d, 0xff, 0, 0, 0}
	binary.BigEndian.PutUint16(mac[4:], uint16(len(old)))
	p := &Port{hub: h}
	p.info = linkdrv.Info{Name: name, Index: len(old) + 1, MAC: mac, MTU: h.mtu, RxSlots: h.slots, Kind: Kind}
	p.rx = queue{slots: make([][]byte, 2*h.slots), limit: h.mtu + linkdrv.HeaderLen, event: -1}
	ports := append(slices.Clone(old), p)
	h.ports.Store(&ports)
	return p
}

// Send implements linkdrv.Driver.
func (p *Port) Send(frames []linkdrv.TxFrame) (n int, err error) {
	p.stats.SendCalls++
	ports := *p.hub.ports.Load()
	for i := range frames {
		f := &frames[i]
		if err = p.refuse(f); err != nil {
			p.stats.Refused++
			return i + 1, err
		}
		if to := int(binary.BigEndian.Uint16(f.Head[4:])); to < len(ports) && [4]byte(f.Head) == [4]byte(p.info.MAC) {
			ports[to].rx.put(f)
		}
		p.stats.Sent++
	}
	return len(frames), nil
}
