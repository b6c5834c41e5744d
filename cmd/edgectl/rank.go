package main

import (
	"cmp"
	"slices"

	"multiedge/internal/inspect"
)

// topReport is what top shows, and prints with -j: rates between two looks, what carries most first.
type topReport struct {
	Schema      int       `json:"schema"`
	Name        string    `json:"name"`
	Uptime      float64   `json:"uptime_seconds"`
	Interval    float64   `json:"interval_seconds"`
	Security    string    `json:"security"`
	Rates       rates     `json:"rates"` // per second, of the whole daemon
	PinnedBytes uint64    `json:"pinned_bytes"`
	Connections int       `json:"connections"`
	Links       []topLink `json:"links"`
	Peers       []topPeer `json:"peers"`
	Conns       []topConn `json:"busiest_connections"` // left out where there are more than mostConns
}

type topLink struct {
	Name  string `json:"name"`
	Up    bool   `json:"up"`
	Rates rates  `json:"rates"`
}

// topPeer has rates of what was sent to the peer: what comes from it is not counted by peer.
type topPeer struct {
	Name        string `json:"name"`
	Node        string `json:"node"`
	State       string `json:"state"`
	Connections int    `json:"connections"`
	InFlight    int    `json:"frames_in_flight"`
	SRTT        int64  `json:"srtt_ns"` // of the fastest path
	Rates       rates  `json:"rates"`
}

type topConn struct {
	ID          uint32  `json:"id"`
	PID         int32   `json:"pid"`
	Peer        string  `json:"peer"`
	Service     string  `json:"service"`
	State       string  `json:"state"`
	Operations  float64 `json:"operations_per_second"` // submitted
	Outstanding int     `json:"outstanding"`
	Held        int     `json:"held_segments"`
	Unread      int     `json:"unread_notifications"`
}

// rank compares two looks at one run of the daemon.
func rank(now, before *fullSample) *topReport {
	st := &now.status
	t := now.secondsSince(&before.sample)
	return &topReport{
		Schema: inspect.StatusSchema, Name: st.Name, Uptime: st.UptimeSeconds, Interval: t, Security: st.Security,
		Rates: growth(st.Counters, before.status.Counters, t), PinnedBytes: st.PinnedBytes, Connections: st.Connections,
		Links: rankLinks(now.links, before.links, t), Peers: rankPeers(now.peers, before.peers, t),
		Conns: rankConns(now.conns, before.conns, t),
	}
}

// growth is perSecond for what may begin anew while the daemon lives: a link that left, a session that ended. What is
// there is new then.
func growth(now, before inspect.Counts, seconds float64) rates {
	if r := perSecond(now, before, seconds); r != nil {
		return r
	}
	return perSecond(now, nil, seconds)
}

func rankLinks(now, before []inspect.LinkStatus, t float64) []topLink {
	old := map[string]inspect.Counts{}
	for i := range before {
		old[before[i].Name] = linkCounts(&before[i])
	}
	list := []topLink{}
	for i := range now {
		l := &now[i]
		list = append(list, topLink{l.Name, l.Up, growth(linkCounts(l), old[l.Name], t)})
	}
	slices.SortStableFunc(list, func(a, b topLink) int {
		return cmp.Compare(b.Rates["bytes_sent"]+b.Rates["bytes_received"],
			a.Rates["bytes_sent"]+a.Rates["bytes_received"])
	})
	return list
}

func rankPeers(now, before []inspect.PeerStatus, t float64) []topPeer {
	old := map[string]inspect.Counts{}
	for i := range before {
		old[before[i].Node] = pathCounts(&before[i])
	}
	list := []topPeer{}
	for i := range now {
		p := &now[i]
		tp := topPeer{Name: p.Name, Node: p.Node, State: p.State, Connections: p.Connections, InFlight: p.InFlight,
			Rates: growth(pathCounts(p), old[p.Node], t)}
		for _, path := range p.Paths {
			if path.SRTT > 0 && (tp.SRTT == 0 || path.SRTT < tp.SRTT) {
				tp.SRTT = path.SRTT
			}
		}
		list = append(list, tp)
	}
	slices.SortStableFunc(list, func(a, b topPeer) int { return cmp.Compare(b.Rates["bytes"], a.Rates["bytes"]) })
	return list
}

// pathCounts adds a peer's paths up.
func pathCounts(p *inspect.PeerStatus) inspect.Counts {
	sum := inspect.Counts{"frames": 0, "bytes": 0, "retransmitted": 0, "lost": 0}
	for _, path := range p.Paths {
		for word, n := range path.Counters {
			sum[word] += n
		}
	}
	return sum
}

func rankConns(now, before []inspect.ConnStatus, t float64) []topConn {
	type key struct {
		shard int
		id    uint32
	}
	old := map[key]uint32{}
	for _, c := range before {
		old[key{c.Shard, c.ID}] = c.Submitted
	}
	list := []topConn{}
	for _, c := range now {
		posted := c.Submitted - old[key{c.Shard, c.ID}] // modulo 2^32, as it is counted
		list = append(list, topConn{c.ID, c.PID, c.Peer, c.Service, c.State, float64(posted) / t, c.Outstanding, c.Held,
			c.Unread})
	}
	orderConns(list, 0)
	return list
}

// connOrders are the columns that connections can be ordered by, the largest first.
var connOrders = []struct {
	column string
	of     func(*topConn) float64
}{
	{"OPS/S", func(c *topConn) float64 { return c.Operations }},
	{"OUTSTANDING", func(c *topConn) float64 { return float64(c.Outstanding) }},
	{"HELD", func(c *topConn) float64 { return float64(c.Held) }},
	{"UNREAD", func(c *topConn) float64 { return float64(c.Unread) }},
}

// orderConns orders by one of connOrders, what is equal there by the first ones.
func orderConns(list []topConn, order int) {
	slices.SortStableFunc(list, func(a, b topConn) int {
		by := func(i int) int { return cmp.Compare(connOrders[i].of(&b), connOrders[i].of(&a)) }
		return cmp.Or(by(order), by(0), by(1))
	})
}
