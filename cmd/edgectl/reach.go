package main

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"multiedge/internal/daemon"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// doctor --reach NAME: the peer is dialled as a program would dial it, and its paths are looked at.

// Changed by tests alone.
var (
	reachWait   = 3 * time.Second // for an answer, with a session's handshake
	reachSample = time.Second     // in which the speed of lanes is measured
)

// reach examines the way to one peer.
func (g *globals) reach(name string) ([]inspect.Finding, error) {
	g.Timeout = max(g.Timeout, reachWait+time.Second)
	r, err := get[daemon.PingReport](g, ipc.Message{Kind: ipc.KindPing, Peer: name, Count: 1, Timeout: reachWait})
	if err != nil {
		return nil, err
	}
	if len(r.Results) != 1 || r.Results[0].Status != "ok" {
		all, err := get[[]inspect.AuthorisedStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "authorised"})
		if err != nil {
			return nil, err
		}
		return []inspect.Finding{unanswered(name, &r, all)}, nil
	}
	var at [2]float64 // by the daemon's own clock
	var peers [2][]inspect.PeerStatus
	for k := range peers {
		time.Sleep(time.Duration(k) * reachSample)
		st, err := g.status()
		if err == nil {
			peers[k], err = get[[]inspect.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
		}
		if err != nil {
			return nil, err
		}
		at[k] = st.UptimeSeconds
	}
	found := []inspect.Finding{{Severity: inspect.FindingOK, About: "reach " + name,
		Text: "answers within " + micros(r.Results[0].Nanos)}}
	return append(found, capped(name, peers[0], peers[1], max(at[1]-at[0], 1e-9))...), nil
}

// unanswered says where a peer was asked in vain, and what may keep datagrams from it.
func unanswered(name string, r *daemon.PingReport, all []inspect.AuthorisedStatus) inspect.Finding {
	f := inspect.Finding{Severity: inspect.FindingProblem, About: "reach " + name, Text: "no answer",
		Remedy: "edgectl peer; edgectl peers list"}
	if len(r.Results) > 0 {
		f.Text += ": " + r.Results[0].Text
	}
	i := slices.IndexFunc(all, func(a inspect.AuthorisedStatus) bool { return a.Name == name || a.Node == name })
	if i < 0 {
		return f
	}
	if all[i].Endpoints == "" {
		return f
	}
	var ports []string
	for _, at := range strings.Split(all[i].Endpoints, ",") {
		if _, port, err := net.SplitHostPort(at); err == nil && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	list := strings.Join(ports, ", ")
	f.Text = fmt.Sprintf("no answer from %s", strings.ReplaceAll(all[i].Endpoints, ",", ", "))
	f.Remedy = fmt.Sprintf("there: systemctl status edged; ss -ulpn shows who has UDP port %s; the security group or "+
		"firewall rule to open is inbound UDP %s from this host, and the ports above it if edged there has several "+
		"shards, with nftables: nft add rule inet filter input udp dport { %s } accept; and edgectl peers list there "+
		"must have this node's key", list, list, list)
	return f
}

// flowCaps are what clouds leave to one flow, in Gbit/s (docs/CLOUDS.md).
var flowCaps = []float64{5, 10, 25}

// capped tells of lanes to a peer that moved, between two looks so many seconds apart, as much as clouds leave to one
// flow: more lanes move more.
func capped(name string, before, after []inspect.PeerStatus, seconds float64) (found []inspect.Finding) {
	for i := range after {
		p := &after[i]
		was := slices.IndexFunc(before, func(o inspect.PeerStatus) bool {
			return o.Node == p.Node && o.Shard == p.Shard && o.PeerShard == p.PeerShard
		})
		if was < 0 || p.Name != name && p.Node != name {
			continue
		}
		for _, path := range p.Paths {
			rate := float64(path.Counters["bytes"]-bytesOf(&before[was], path.Link)) * 8 / seconds / 1e9
			if path.SeenAs == "" || !slices.ContainsFunc(flowCaps, func(most float64) bool {
				return math.Abs(rate-most) < most*0.04
			}) {
				continue
			}
			found = append(found, inspect.Finding{Severity: inspect.FindingWarning, About: "reach " + name,
				Text: fmt.Sprintf("%s moves %.1f Gbit/s: what some clouds leave to one flow", path.Link, rate),
				Remedy: "more lanes are more flows: lanes = 8 below [[link]] at both ends; edgectl link shows how " +
					"many there are"})
		}
	}
	return found
}

// bytesOf is what the path over a link has sent.
func bytesOf(p *inspect.PeerStatus, link string) uint64 {
	for _, path := range p.Paths {
		if path.Link == link {
			return path.Counters["bytes"]
		}
	}
	return 0
}
