package metrics

import (
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"multiedge/internal/buildinfo"
	"multiedge/internal/engine"
	"multiedge/internal/inspect"
)

// Labels are device (the node's name), link, peer and kind of operation only: their number is bounded by the
// configuration and the network, never by connections.
var (
	deviceLabels = []string{"device"}
	linkLabels   = []string{"device", "link"}
	pathLabels   = []string{"device", "link", "peer"}
	peerLabels   = []string{"device", "peer"}
	kindLabels   = []string{"device", "kind"}
)

// deviceCounter is one word of the engine.
type deviceCounter struct {
	desc *prometheus.Desc
	read func(*engine.Counters) uint64
}

// reading is a figure of a link, peer or path.
type reading[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*T) float64
}

// readings makes readings with the same labels.
func readings[T any](labels []string) func(name, help string, kind prometheus.ValueType,
	read func(*T) float64) reading[T] {
	return func(name, help string, kind prometheus.ValueType, read func(*T) float64) reading[T] {
		return reading[T]{desc(name, help, labels), kind, read}
	}
}

type collector struct {
	src      Source
	version  string
	up, info *prometheus.Desc
	counters []deviceCounter
	status   []reading[inspect.Status]
	links    []reading[inspect.LinkStatus]
	peers    []reading[inspect.PeerStatus]
	paths    []reading[inspect.PathStatus]

	operations, roundTrips, missWait, pinDelay, pinTime *prometheus.Desc
}

func desc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc("edge_"+name, help, labels, nil)
}

func newCollector(src Source, version string) *collector {
	return &collector{
		src: src, version: version,
		up: desc("up", "Whether the daemon could be asked for its state.", deviceLabels),
		info: desc("build_info", "Version and commit of the daemon; always 1.", []string{"version", "revision",
			"goversion"}),
		counters: deviceCounters(), status: slices.Concat(statusReadings(), spaceReadings()),
		links: linkReadings(), peers: peerReadings(),
		paths: pathReadings(),

		operations: desc("operation_seconds",
			"Time from taking an operation of a local client to its completion; those that failed are not counted.",
			kindLabels),
		roundTrips: desc("link_round_trip_seconds",
			"Round trips on the link as they were measured, without the time that acknowledgements were held back.",
			linkLabels),
		missWait: desc("space_miss_wait_seconds",
			"Time from a miss of memory until what met it went on.", deviceLabels),
		pinDelay: desc("space_pin_delay_seconds", "Time from asking for a chunk until the pinner began with it.",
			deviceLabels),
		pinTime: desc("space_pin_seconds", "Time that filling and locking a chunk took.", deviceLabels),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.info
	for i := range c.counters {
		ch <- c.counters[i].desc
	}
	describe(ch, c.status)
	describe(ch, c.links)
	describe(ch, c.peers)
	describe(ch, c.paths)
	ch <- c.operations
	ch <- c.roundTrips
	ch <- c.missWait
	ch <- c.pinDelay
	ch <- c.pinTime
}

func describe[T any](ch chan<- *prometheus.Desc, rs []reading[T]) {
	for i := range rs {
		ch <- rs[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	device, _ := c.src.Node()
	device = label(device)
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, c.version, buildinfo.Revision(),
		runtime.Version())
	snap, err := c.src.Snapshot()
	if err != nil {
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0, device)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 1, device)
	for _, m := range c.counters {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.read(&snap.Counters)), device)
	}
	collect(ch, c.status, &snap.Status, device)
	for i := range snap.Links {
		collect(ch, c.links, &snap.Links[i], device, snap.Links[i].Name)
		ch <- newHistogram(c.roundTrips, &snap.Links[i].RoundTrips, device, snap.Links[i].Name)
	}
	ch <- newHistogram(c.operations, &snap.Latency.Write, device, "write")
	ch <- newHistogram(c.operations, &snap.Latency.Read, device, "read")
	ch <- newHistogram(c.operations, &snap.Latency.Send, device, "send")
	ch <- newHistogram(c.operations, &snap.Latency.Atomic, device, "atomic")
	ch <- newHistogram(c.missWait, &snap.Latency.Miss, device)
	ch <- newHistogram(c.pinDelay, &snap.Latency.PinDelay, device)
	ch <- newHistogram(c.pinTime, &snap.Latency.Pin, device)
	c.collectPeers(ch, inspect.MergePeers(snap.Peers), device)
}

// collectPeers reports peers by name. Of two nodes of one name only the first is reported: a series cannot be given
// twice.
func (c *collector) collectPeers(ch chan<- prometheus.Metric, peers []inspect.PeerStatus, device string) {
	seen := map[string]bool{}
	for i := range peers {
		p := &peers[i]
		name := label(p.Name)
		if seen[name] {
			continue
		}
		seen[name] = true
		collect(ch, c.peers, p, device, name)
		links := map[string]bool{}
		for j := range p.Paths {
			if path := &p.Paths[j]; !links[path.Link] {
				links[path.Link] = true
				collect(ch, c.paths, path, device, path.Link, name)
			}
		}
	}
}

// label makes a label of a name: one that is not UTF-8, as a node in plaintext can have, would end the scrape.
func label(name string) string { return strings.ToValidUTF8(name, "?") }

func collect[T any](ch chan<- prometheus.Metric, rs []reading[T], v *T, labels ...string) {
	for i := range rs {
		ch <- prometheus.MustNewConstMetric(rs[i].desc, rs[i].kind, rs[i].read(v), labels...)
	}
}
