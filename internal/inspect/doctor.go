package inspect

import (
	"cmp"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"multiedge/internal/aesgcm"
	"multiedge/internal/config"
	"multiedge/internal/ethtool"
	"multiedge/internal/wire"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Severity of a Finding.
const (
	FindingOK      = "ok"
	FindingWarning = "warning" // works, but worse than it could
	FindingProblem = "problem" // does not work, or not for long
)

// Finding is one thing doctor looked at.
type Finding struct {
	Severity string `json:"severity"`
	About    string `json:"about"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy,omitempty"` // what to do; empty if all is well
}

// CheckHost examines what a daemon needs of the host for the given links. It needs no daemon. Capabilities and limits
// are those of the calling process.
func CheckHost(links []string) []Finding {
	f := process(true)
	for _, name := range links {
		f.iface(name, name, "", false)
	}
	return f
}

// process looks at what this process may do; packets: it has links that are no UDP ports.
func process(packets bool) (f findings) {
	if packets {
		f.capability(unix.CAP_NET_RAW, "CAP_NET_RAW", FindingProblem, "packet sockets can be opened",
			"no packet socket can be opened", "run edged as root, or setcap cap_net_raw,cap_ipc_lock+ep on its "+
				"binary, or AmbientCapabilities= in the unit; or edged --listen :9470, which needs no privilege")
	}
	f.memlock()
	f.cipher()
	if g, ok := regmem.TightestGroup(); ok {
		f.group(&g)
	}
	return f
}

type findings []Finding

func (f *findings) add(severity, about, text, remedy string) {
	*f = append(*f, Finding{severity, about, text, remedy})
}

// hasCapability reports whether the process has an effective capability.
func hasCapability(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

func (f *findings) capability(c int, name, severity, good, bad, remedy string) {
	if hasCapability(c) {
		f.add(FindingOK, name, good, "")
		return
	}
	f.add(severity, name, bad, remedy)
}

// cipher says how fast frames are sealed.
func (f *findings) cipher() {
	text := "the processor encrypts four blocks at once (VAES, AVX-512)"
	switch aesgcm.Width() {
	case 2:
		text = "the processor encrypts two blocks at once (VAES, AVX2)"
	case 1:
		text = "AES-GCM is the standard library's: this processor lacks VAES (or GODEBUG hides it), with which large " +
			"frames are sealed at up to twice the speed"
	}
	f.add(FindingOK, "cipher", text, "")
}

// group looks at what the memory limit of a control group leaves.
func (f *findings) group(g *regmem.Group) {
	text := fmt.Sprintf("control group %s has room for %v of %v (%s): no more can be registered", g.Dir,
		config.Size(g.Room()>>20<<20), config.Size(g.Limit), g.File)
	if g.Room() < 64<<20 {
		f.add(FindingWarning, "memory", text,
			"raise MemoryMax= and MemoryHigh= in the unit, or the container's memory limit")
	} else {
		f.add(FindingOK, "memory", text, "")
	}
}

// iface looks at the interface of a link, which the daemon uses by that driver, if it does; running: there is a daemon.
func (f *findings) iface(link, name, driver string, running bool) {
	about := "link " + link
	all, err := net.Interfaces()
	if err != nil {
		f.add(FindingProblem, about, "the interfaces cannot be listed: "+err.Error(),
			"raise LimitNOFILE if too many files are open")
		return
	}
	i := slices.IndexFunc(all, func(ifi net.Interface) bool { return ifi.Name == name })
	if i < 0 {
		f.missing(name, all, running)
		return
	}
	ifi := &all[i]
	switch {
	case len(ifi.HardwareAddr) != 6:
		f.add(FindingProblem, about, "this is not an Ethernet interface", "choose one of: "+namesOf(all))
		return
	case ifi.Flags&net.FlagUp == 0:
		f.add(FindingProblem, about, "the interface is down", "ip link set "+name+" up")
		return
	case ifi.Flags&net.FlagRunning == 0:
		f.add(FindingProblem, about, "the interface is up but has no carrier",
			"check the cable, or that the other end is up")
	default:
		f.add(FindingOK, about, "up and running", "")
	}
	f.mtu(about, name, driver, ifi.MTU)
	f.offloads(about, name, driver)
}

// mtu advises on frame sizes. One more page per frame costs 5 to 10 %; frames of 1500 cost two thirds of the
// throughput.
func (f *findings) mtu(about, name, driver string, mtu int) {
	switch {
	case mtu < wire.MinFrame:
		f.add(FindingProblem, about, fmt.Sprintf("MTU %d is too small", mtu),
			"ip link set "+name+" mtu 9000, if the switch carries that")
	case mtu <= 2048 && driver != linkdrv.KindUDP:
		f.add(FindingWarning, about, fmt.Sprintf("MTU %d: frames alone reach about a third of what jumbo frames do",
			mtu),
			"ip link set "+name+" mtu 9000, if the switch and every peer carry that; or driver = \"udp\" at both ends")
	default:
		f.add(FindingOK, about, fmt.Sprintf("MTU %d", mtu), "")
	}
}

// offloads looks at what a NIC does to received frames. Offloads of TCP and IP do not know this protocol and leave its
// frames alone, but for those in datagrams.
func (f *findings) offloads(about, name, driver string) {
	if driver == linkdrv.KindUDP {
		f.add(FindingOK, about, "frames travel in UDP datagrams to peers that take them, which cost least where the "+
			"NIC cuts them up and merges them: ethtool -k "+name+" shows tx-udp-segmentation and rx-udp-gro-forwarding",
			"")
	} else if features, err := ethtool.Features(name); err == nil && features["rx-lro"] {
		f.add(FindingWarning, about, "large receive offload is on, which some NICs apply to every frame",
			"ethtool -K "+name+" lro off")
	} else {
		f.add(FindingOK, about, "offloads leave this protocol's frames alone", "")
	}
	if usecs, err := ethtool.RxDelay(name); err == nil && usecs > 8 {
		f.add(FindingWarning, about, fmt.Sprintf("the NIC delays receive interrupts by up to %d us", usecs),
			"ethtool -C "+name+" adaptive-rx off rx-usecs 0, where latency matters")
	}
}

// Facts examines a running node: its own rights and the state of its links.
func (in *Inspector) Facts(snap *Snapshot) []Finding {
	packets := slices.ContainsFunc(snap.Links, func(l LinkStatus) bool { return !l.isIP() })
	f, id := process(packets || len(snap.Links) == 0), in.node.Identity()
	for i := range snap.Links {
		if in.node.InMemory {
			break // links in memory
		}
		l := &snap.Links[i]
		if l.isIP() {
			continue
		}
		f.iface(l.Name, cmp.Or(l.Device, l.Name), l.Driver, true)
		f.renamed(l)
	}
	if !in.node.InMemory && !in.node.Elsewhere && hasIP(snap.Links) {
		f.networks(snap.Links)
	}
	in.container(&f)
	f.drain(snap.Status.Draining)
	f.reload(snap.Status.Reload, snap.Status.LinksUp)
	f.security(id, in.node.InMemory, snap)
	f.claim(id, snap.Claim)
	f.shards(len(in.node.Shards), runtime.NumCPU())
	for i := range snap.Links {
		f.running(&snap.Links[i])
	}
	own, _ := net.InterfaceAddrs() // without them nothing is known to be another's
	for i := range snap.Peers {
		f.peer(&snap.Peers[i], snap.Links)
		if len(own) > 0 && !in.node.Elsewhere {
			f.translated(&snap.Peers[i], own)
		}
	}
	f.unreached(snap)
	f.silence(snap)
	f.spaces(snap)
	return f
}

// troubled reports whether a problem of something was said.
func (f *findings) troubled(about string) bool {
	return slices.ContainsFunc(*f, func(x Finding) bool { return x.About == about && x.Severity == FindingProblem })
}

// drain tells of a drain, which somebody may have forgotten.
func (f *findings) drain(draining bool) {
	if draining {
		f.add(FindingWarning, "daemon", "it drains: it takes no new connections and no new memory",
			"restart it once edgectl client shows nobody, or edgectl drain --undo")
	}
}

// reload tells of a configuration that is not in force as it is written. Links that could not be opened are findings of
// their own, and no restart opens them; without any link edged would not even start.
func (f *findings) reload(r *ReloadStatus, linksUp int) {
	switch {
	case r == nil || r.Result == ReloadOK:
	case r.Result == ReloadFailed:
		f.add(FindingProblem, "configuration",
			fmt.Sprintf("the reload of %s failed, and the daemon goes on with what it had: %s",
				r.At.Format(time.DateTime), r.Error), "correct the file, edged --check, systemctl reload edged")
	case len(r.Restart) > 0:
		remedy := "systemctl restart edged, when that suits the programs"
		if linksUp == 0 {
			remedy = "bring a link up first: edged does not start without one; then " + remedy
		}
		f.add(FindingWarning, "configuration", fmt.Sprintf("the reload of %s took effect in part: a restart is needed "+
			"for %s", r.At.Format(time.DateTime), strings.Join(r.Restart, ", ")), remedy)
	default:
		f.add(FindingWarning, "configuration", fmt.Sprintf("the reload of %s took effect in part: %s",
			r.At.Format(time.DateTime), r.Error), "put right what it names; edged retries links by itself")
	}
}

// silence says why no peer was heard. Strangers are not remembered, so whether there are some is not known; without any
// authorised peer it has been said already.
func (f *findings) silence(snap *Snapshot) {
	wires := "on the same Ethernet segment; check VLANs and that switches pass EtherType " + snap.Status.EtherType
	if hasIP(snap.Links) {
		wires += "; over IP: let it dial this node, or edgectl peers add KEY NAME --endpoint HOST:PORT"
	}
	switch {
	case len(snap.Peers) > 0, slices.ContainsFunc(snap.Authorised, AuthorisedStatus.known):
	case hasIP(snap.Links) && slices.ContainsFunc(snap.Authorised, AuthorisedStatus.placed): // asked when it is dialled
	case snap.Status.Security == config.Plaintext:
		f.add(FindingWarning, "peers", "no other node was heard on any link", "start edged on another host "+wires)
	case snap.Status.Authorised > 0:
		f.add(FindingWarning, "peers", "no authorised peer was heard on any link",
			"compare edgectl peers list with edgectl key show at the peer; start edged there, "+wires)
	}
}

// running looks at a link as the daemon uses it.
func (f *findings) running(l *LinkStatus) {
	about := "link " + l.Name
	if l.isIP() {
		f.ipLink(l)
		return
	}
	if !l.Up && f.troubled(about) {
		return // the interface's trouble is the link's, and was said
	}
	if !l.Up {
		f.add(FindingProblem, about, "not in use: "+l.downText(),
			"ip link set "+l.Name+" up; edged uses it within two seconds")
		return
	}
	text := fmt.Sprintf("%s driver with %d receive slots", l.Driver, l.RxSlots)
	switch size := l.RxSlots * l.MTU; {
	case l.Driver != linkdrv.KindMmsg && size > 4<<20:
		f.add(FindingWarning, about, text+": a ring that large leaves the cache and costs 10 to 25 %",
			"leave slots out of the configuration")
	case l.RxSlots < 64 && size < 1<<20:
		f.add(FindingWarning, about, text+": bursts will be dropped", "set slots = 256")
	default:
		f.add(FindingOK, about, text, "")
	}
	f.dropped(l)
	f.spoilt(l)
	switch {
	case l.Kernel["truncated"] == 0:
	case l.Driver == linkdrv.KindUDP:
		f.add(FindingWarning, about, fmt.Sprintf("%d datagrams to this transport's addresses held no frames",
			l.Kernel["truncated"]), "find out who else uses them on this wire")
	default:
		f.add(FindingWarning, about, fmt.Sprintf("%d frames were longer than a slot", l.Kernel["truncated"]),
			"set the same MTU at both ends")
	}
}

// dropped tells of frames for which there was no room.
func (f *findings) dropped(l *LinkStatus) {
	received, dropped := l.Kernel["received"], l.Kernel["dropped"]
	if dropped*1000 > received+dropped {
		f.add(FindingWarning, "link "+l.Name, fmt.Sprintf("the kernel dropped %d of %d frames: the daemon was not "+
			"quick enough", dropped, received+dropped),
			"give edged a core of its own, set poll = \"busy\", or raise slots")
	}
}

// Of losses by chance or by full queues the last frame of a message is one of many, or not lost alone. Where three of
// four are such, and there are as many, messages are spoiled where they are cut up.
const (
	fewSpoilt   = 50
	shareSpoilt = 3.0 / 4
)

// spoilt tells of a kernel that spoils the last of the frames which leave as one message.
func (f *findings) spoilt(l *LinkStatus) {
	ends, lost := l.Counters["train_ends_lost"], l.Counters["frames_lost"]
	if ends < fewSpoilt || float64(ends) < shareSpoilt*float64(lost) {
		return
	}
	f.add(FindingWarning, "link "+l.Name, fmt.Sprintf("of %d frames that were lost %d were the last of several which "+
		"left as one message, and the one before arrived: the kernel spoils what it cuts up (GSO), as Linux 7.0 to "+
		"7.1.4 does", lost, ends), "uname -r here, and on the hypervisor if this is a guest: run Linux 7.1.5 or "+
		"later, or one before 7.0")
}

// peer looks at the ways to a node.
func (f *findings) peer(p *PeerStatus, links []LinkStatus) {
	for _, path := range p.Paths {
		about := "peer " + p.Name
		if path.State != "good" {
			f.add(FindingWarning, about, fmt.Sprintf("path over %s is %s", path.Link, path.State),
				"check that link at both ends: edgectl link, edgectl peer")
			continue
		}
		// The longest frame is a little shorter than the MTU where it travels in a datagram.
		if i := slices.IndexFunc(links, func(l LinkStatus) bool { return l.Name == path.Link }); i >= 0 &&
			path.MTU < links[i].MTU/4*3 && !narrower(path.PeerMTU, links[i].MTU) {
			f.add(FindingWarning, about, fmt.Sprintf("path over %s carries frames of %d bytes, of the link's MTU %d: "+
				"the peer's link or a switch between them takes no more, or many large frames were lost", path.Link,
				path.MTU, links[i].MTU),
				"set the same MTU at both ends and on the switches; if it is, see edgectl peer again in a minute")
		} else if i >= 0 && (narrower(path.PeerMTU, links[i].MTU) || narrower(links[i].MTU, path.PeerMTU)) {
			f.add(FindingWarning, about, fmt.Sprintf("over %s this node's link has MTU %d and the peer's %d: frames "+
				"are as long as the smaller one allows", path.Link, links[i].MTU, path.PeerMTU),
				fmt.Sprintf("set both to %d, if the switches carry that", max(links[i].MTU, path.PeerMTU)))
		}
	}
}

// narrower reports that one end of a path takes much shorter frames than the other. 0 is not known.
func narrower(a, b int) bool { return a > 0 && a < b/4*3 }

func namesOf(all []net.Interface) string {
	names := make([]string, len(all))
	for i, ifi := range all {
		names[i] = ifi.Name
	}
	return strings.Join(names, ", ")
}

// shards is what doctor says about the number of shards.
func (f *findings) shards(n, cores int) {
	if n > cores {
		f.add(FindingWarning, "shards", fmt.Sprintf("%d shards share %d processors", n, cores),
			"set shards to the number of cores that may serve links, at most")
	}
}
