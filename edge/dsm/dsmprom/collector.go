// Package dsmprom exports to Prometheus what a rank of shared memory does (docs/DSM.md, "Metrics"):
//
//	c := dsmprom.New("job7", rank)
//	prometheus.MustRegister(c)
//	err := dsm.Run(ctx, dsm.Config{Observe: c.Observe}, program)
//
// libedge-dsm writes the same metrics to files (EDGE_DSM_STATS), for ranks in C.
package dsmprom

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"multiedge/edge/dsm"
)

// reading is a metric, and what of Stats it shows. All of them are counters, which begin anew at Memory.ResetStats.
type reading struct {
	name, help string
	of         func(s *dsm.Stats) float64
}

func count(name, help string, of func(s *dsm.Stats) int) reading {
	return reading{name + "_total", help, func(s *dsm.Stats) float64 { return float64(of(s)) }}
}

func seconds(name, help string, of func(s *dsm.Stats) time.Duration) reading {
	return reading{name + "_seconds_total", help, func(s *dsm.Stats) float64 { return of(s).Seconds() }}
}

// readings are all metrics, by name without its prefix.
var readings = []reading{
	count("operations", "Reads, writes and atomics on memory of other ranks.",
		func(s *dsm.Stats) int { return s.Operations }),
	count("fetches", "Reads of pages.", func(s *dsm.Stats) int { return s.Fetches }),
	count("pages_fetched", "Pages that were read.", func(s *dsm.Stats) int { return s.Pages }),
	count("twins", "Copies of pages made before writing.", func(s *dsm.Stats) int { return s.Twins }),
	count("diffs", "Pages compared with their twins.", func(s *dsm.Stats) int { return s.Diffs }),
	count("runs", "Writes of changed bytes.", func(s *dsm.Stats) int { return s.Runs }),
	count("run_bytes", "Bytes that writes of changed bytes carried.", func(s *dsm.Stats) int { return s.Bytes }),
	count("notices", "Pages that others said they had changed.", func(s *dsm.Stats) int { return s.Notices }),
	count("pages_brought", "Of the notices, those of pages whose changes came with a barrier (Array.Follow).",
		func(s *dsm.Stats) int { return s.Brought }),
	count("stale_pages", "Of the notices, those of pages that were in use here.",
		func(s *dsm.Stats) int { return s.Stale }),
	count("refreshed_pages", "Of them, those of pages that this rank was writing as well.",
		func(s *dsm.Stats) int { return s.Refreshes }),
	count("log_overruns", "Times that a log had gone on too far to be read.",
		func(s *dsm.Stats) int { return s.Overruns }),
	count("locks", "Locks that were taken.", func(s *dsm.Stats) int { return s.Locks }),
	count("lock_waits", "Of them, those that another rank had.", func(s *dsm.Stats) int { return s.Waits }),
	count("barriers", "Barriers.", func(s *dsm.Stats) int { return s.Barriers }),
	seconds("run", "Time of the run; what the following leave of it is the program's own.",
		func(s *dsm.Stats) time.Duration { return s.Total }),
	seconds("data", "Time of waiting for pages.", func(s *dsm.Stats) time.Duration { return s.Data }),
	seconds("flush", "Time of comparing pages and carrying changes home.",
		func(s *dsm.Stats) time.Duration { return s.Flush }),
	seconds("acquire", "Time of reading logs and making pages stale.",
		func(s *dsm.Stats) time.Duration { return s.Acquire }),
	seconds("lock", "Time of waiting for locks.", func(s *dsm.Stats) time.Duration { return s.Lock }),
	seconds("barrier", "Time of waiting in barriers.", func(s *dsm.Stats) time.Duration { return s.Barrier }),
}

// Collector is a prometheus.Collector of one rank, with the labels run and rank. It shows what Observe was told last:
// the state at the rank's latest barrier. Collectors of several ranks may be in one registry. All its methods may be
// called by any goroutine.
type Collector struct {
	descs []*prometheus.Desc

	mu    sync.Mutex
	stats dsm.Stats
}

// New returns a collector for a rank of a run. The name of a run is a secret where others may dial (dsm.Config.Name):
// run may be another name.
func New(run string, rank int) *Collector {
	c, labels := &Collector{}, prometheus.Labels{"run": run, "rank": strconv.Itoa(rank)}
	for _, r := range readings {
		c.descs = append(c.descs, prometheus.NewDesc("edge_dsm_"+r.name, r.help, nil, labels))
	}
	return c
}

// Observe takes what a rank has done; it is for dsm.Config.Observe.
func (c *Collector) Observe(s dsm.Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats = s
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	s := c.stats
	c.mu.Unlock()
	for i, r := range readings {
		ch <- prometheus.MustNewConstMetric(c.descs[i], prometheus.CounterValue, r.of(&s))
	}
}
