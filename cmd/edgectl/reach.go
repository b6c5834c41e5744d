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

const (
	reachWait   = 6 * time.Second // for an answer: longer than a dial takes by default
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
	before, err := get[[]inspect.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	time.Sleep(reachSample)
	after, err := get[[]inspect.PeerStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err != nil {
		return nil, err
	}
	found := []inspect.Finding{{Severity: inspect.FindingOK, About: "reach " + name,
		Text: "answers within " + micros(r.Results[0].Nanos)}}
	return append(found, capped(name, before, after, time.Since(began))...), nil
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
		"firewall rule to open is inbound UDP %s from this host, with nftables: nft add rule inet filter input udp "+
		"dport { %s } accept; and edgectl peers list there must have this node's key", list, list, list)
	return f
}

// flowCaps are what clouds leave to one flow, in Gbit/s (docs/CLOUDS.md).
var flowCaps = []float64{5, 10, 25}

// capped tells of lanes to a peer that move as much as clouds leave to one flow: more lanes move more.
func capped(name string, before, after []inspect.PeerStatus, d time.Duration) (found []inspect.Finding) {
	for i := range after {
		p := &after[i]
		was := slices.IndexFunc(before, func(o inspect.PeerStatus) bool {
			return o.Node == p.Node && o.Shard == p.Shard && o.PeerShard == p.PeerShard
		})
		if was < 0 || p.Name != name && p.Node != name {
			continue
		}
		for _, path := range p.Paths {
			rate := float64(path.Counters["bytes"]-bytesOf(&before[was], path.Link)) * 8 / d.Seconds() / 1e9
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
