package inspect

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"multiedge/internal/engine"
	"multiedge/internal/shard"
)

// How what the shards know becomes one Snapshot: counters and histograms are summed, links are one each, clients,
// connections and peers are listed with the number of their shard.

// part is what one shard knows.
type part struct {
	Snapshot
	raw engine.Snapshot
}

// fill adds what the shard's engine knows to what the shard does.
func (p *part) fill(shard int) {
	for i := range p.Links {
		l := &p.Links[i]
		for j := range p.raw.Links {
			if p.raw.Links[j].Number == l.Number {
				l.Counters, l.RoundTrips = countsOf(p.raw.Links[j].Counters), p.raw.Links[j].RoundTrips
			}
		}
	}
	for i := range p.raw.Peers {
		st := peerStatus(&p.raw.Peers[i], p.Links)
		st.Shard = shard
		p.Peers = append(p.Peers, st)
	}
	if c := &p.raw.Claim; p.raw.Counters.Trust.IdentityClaims > 0 {
		p.Claim = &Claim{Link: nameOf(p.Links, c.Link), MAC: c.Addr.String(), Ago: c.Ago}
	}
}

// join puts the shards' parts together.
func join(parts []part) (*Snapshot, engine.Counters) {
	out, sum := &parts[0].Snapshot, parts[0].raw.Counters
	out.Latency, out.wrong = parts[0].raw.Latency, parts[0].raw.Wrong
	for i := range parts[1:] {
		p := &parts[i+1]
		sum.Add(&p.raw.Counters)
		out.Latency.Add(&p.raw.Latency)
		out.Status.Draining = out.Status.Draining || p.Status.Draining
		out.Status.Evictions += p.Status.Evictions
		out.Status.Exports += p.Status.Exports
		out.Status.Calls = addCounts(out.Status.Calls, p.Status.Calls)
		to, from := &out.Status.Spaces, &p.Status.Spaces
		to.Spaces += from.Spaces
		to.PinnedBytes += from.PinnedBytes
		to.Counters = addCounts(to.Counters, from.Counters)
		for j := range p.Links {
			if j < len(out.Links) {
				out.Links[j].join(&p.Links[j])
			}
		}
		out.Conns = append(out.Conns, p.Conns...)
		out.Regions = append(out.Regions, p.Regions...)
		out.Clients = append(out.Clients, p.Clients...)
		out.Peers = append(out.Peers, p.Peers...)
		out.wrong = append(out.wrong, p.raw.Wrong...)
	}
	out.Peers = foldPeers(out.Peers)
	return out, sum
}

// join adds another shard's view of the same link. Opens, slots and the settings are identical in every shard.
func (l *LinkStatus) join(o *LinkStatus) {
	l.Up, l.Blocked = l.Up && o.Up, l.Blocked || o.Blocked
	l.Discards += o.Discards
	l.Error = cmp.Or(l.Error, o.Error)
	l.Kernel, l.Counters = addCounts(l.Kernel, o.Kernel), addCounts(l.Counters, o.Counters)
	l.RoundTrips.Add(&o.RoundTrips)
}

func addCounts(a, b Counts) Counts {
	if a == nil {
		a = Counts{}
	}
	for name, n := range b {
		a[name] += n
	}
	return a
}

// foldPeers leaves out entries without a session of nodes that have others.
func foldPeers(all []PeerStatus) (kept []PeerStatus) {
	last := map[string]int{} // how many entries of a node are still to come
	for i := range all {
		last[all[i].Node]++
	}
	seen := map[string]bool{}
	for i := range all {
		p := &all[i]
		last[p.Node]--
		if p.State != "known" || !seen[p.Node] && last[p.Node] == 0 {
			seen[p.Node] = true
			kept = append(kept, *p)
		}
	}
	return kept
}

// MergePeers adds the entries of each node up, for those who count nodes and not shards. What cannot be added is that
// of the node's first entry.
func MergePeers(all []PeerStatus) (merged []PeerStatus) {
	at := map[string]int{}
	for _, p := range all {
		i, ok := at[p.Node]
		if !ok {
			at[p.Node] = len(merged)
			p.Paths = append([]PathStatus{}, p.Paths...)
			merged = append(merged, p)
			continue
		}
		m := &merged[i]
		m.Connections += p.Connections
		m.InFlight += p.InFlight
		m.Lost += p.Lost
		m.Retransmitted += p.Retransmitted
		m.Received += p.Received
		m.Sessions += p.Sessions
		m.Twins += p.Twins
		m.Flaps = m.Flaps || p.Flaps
		m.SilentSeconds = min(m.SilentSeconds, p.SilentSeconds)
		for _, t := range p.Paths {
			m.addPath(t)
		}
	}
	return merged
}

func (p *PeerStatus) addPath(t PathStatus) {
	for i := range p.Paths {
		if m := &p.Paths[i]; m.Link == t.Link {
			m.Window += t.Window
			m.InFlight += t.InFlight
			m.Counters = addCounts(addCounts(nil, m.Counters), t.Counters)
			return
		}
	}
	p.Paths = append(p.Paths, t)
}

func countNodes(peers []PeerStatus) int {
	nodes := map[string]bool{}
	for i := range peers {
		nodes[peers[i].Node] = true
	}
	return len(nodes)
}

func shardStatus(s *shard.Shard, p *part) ShardStatus {
	own, receivers := s.Threads()
	st := ShardStatus{Shard: s.Number(), Thread: own, Clients: len(p.Clients), Connections: len(p.Conns),
		Receivers: len(receivers), Counters: countsOf(p.raw.Counters)}
	st.CPUUserSeconds, st.CPUSystemSeconds = threadUsage(own)
	for _, thread := range receivers {
		u, v := threadUsage(thread)
		st.CPUReceivers += u + v
	}
	return st
}

// clockTick is USER_HZ, in which /proc counts processor time; it is the same on every Linux that Go runs on.
const clockTick = 100

// threadUsage returns what a thread of this process has consumed so far; zero if there is no such thread.
func threadUsage(thread int) (user, system float64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	if err != nil {
		return 0, 0
	}
	// from the third field on: the second may contain anything
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0, 0
	}
	u, _ := strconv.ParseFloat(fields[11], 64)
	v, _ := strconv.ParseFloat(fields[12], 64)
	return u / clockTick, v / clockTick
}
