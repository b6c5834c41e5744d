package inspect

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"multiedge/linkdrv"
)

// What people are told of links that are UDP ports.

// fewDatagrams is how many frames a receive buffer holds at least for a link to run at full speed: a window of the
// session.
const fewDatagrams = 512

// isIP reports whether the link is a UDP port.
func (l *LinkStatus) isIP() bool { return l.Listen != "" }

// hasIP reports whether a link that is up is a UDP port.
func hasIP(links []LinkStatus) bool {
	return slices.ContainsFunc(links, func(l LinkStatus) bool { return l.isIP() && l.Up })
}

// translated tells of a translator of addresses between this node and a peer. own are the host's addresses.
func (f *findings) translated(p *PeerStatus, own []net.Addr) {
	for _, path := range p.Paths {
		at, err := netip.ParseAddrPort(path.SeenAs)
		if err != nil || slices.ContainsFunc(own, func(a net.Addr) bool {
			n, err := netip.ParsePrefix(a.String())
			return err == nil && n.Addr().WithZone("") == at.Addr()
		}) {
			continue
		}
		f.add(FindingOK, "peer "+p.Name, fmt.Sprintf("it sees this node at %s over %s, which is no address of this "+
			"host: a translator of addresses (NAT) is between them. So this node has to dial, unless that forwards "+
			"the port", path.SeenAs, path.Link), "")
		return // lanes are seen at one address
	}
}

// ipLink looks at a UDP port as the daemon uses it.
func (f *findings) ipLink(l *LinkStatus) {
	about := "link " + l.Name
	if !l.Up {
		f.add(FindingProblem, about, "not in use: "+l.Error, "put right what it names, or listen under [[link]] in "+
			"edged.toml; edged tries again four times a second")
		return
	}
	text := fmt.Sprintf("%s driver at %s, whose receive buffer holds %d frames", linkdrv.KindIP, l.Listen, l.RxSlots)
	if l.RxSlots < fewDatagrams {
		f.add(FindingWarning, about, text+": fewer than may be on their way, which limits the speed",
			"on the host (containers cannot): sysctl -w net.core.rmem_max=16777216, and in /etc/sysctl.d; then "+
				"restart edged")
	} else {
		f.add(FindingOK, about, text, "")
	}
	f.dropped(l)
	if n := l.Kernel["uncut"]; n > 0 {
		f.add(FindingWarning, about, fmt.Sprintf("the kernel does not cut up messages of several datagrams where they "+
			"leave (GSO, refused %d times): each frame costs a message", n),
			"ethtool -K INTERFACE tx-checksum-ip-generic on, or tx on, for the interface that leads to the peers")
	} else if l.Kernel["sent"] > 0 {
		f.add(FindingOK, about, "the kernel cuts up messages of several datagrams (GSO)", "")
	}
	f.spoilt(l)
	if n := l.Counters["marks_failed"]; n > 0 {
		f.add(FindingWarning, about, fmt.Sprintf("%d times marks of congestion (ECN) did not get through to a peer: "+
			"windows follow delay and losses alone there", n), "a router or cloud on the way wipes out or drops what "+
			"has ECN; edgectl peer --json shows which path (ecn); ecn = \"off\" under [[link]] ends the tests")
	}
	if sent, refused := l.Kernel["sent"], l.Kernel["refused"]; refused*100 > sent+refused {
		f.add(FindingWarning, about, fmt.Sprintf("this host refused %d of %d frames: there is no route to the peer, "+
			"or a firewall forbids them", refused, sent+refused),
			"ip route get ADDRESS; nft list ruleset; under systemd IPAddressDeny= of the unit: docs/CLOUDS.md has the "+
				"lines that allow the peers' networks")
	}
}
