package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"multiedge/internal/engine"
	"multiedge/internal/inspect"
)

// Memory that is pinned on demand: what the engine met, and what the spaces did.

func missCounters() []deviceCounter {
	return []deviceCounter{
		word("misses_write_source_total", "Parts of writes whose own memory was not resident.",
			func(c *engine.Counters) uint64 { return c.Miss.MissesWriteSource }),
		word("misses_write_target_total", "Parts of peers' writes whose place was not resident.",
			func(c *engine.Counters) uint64 { return c.Miss.MissesWriteTarget }),
		word("misses_read_target_total", "Parts of peers' reads whose memory was not resident.",
			func(c *engine.Counters) uint64 { return c.Miss.MissesReadTarget }),
		word("misses_read_destination_total", "Parts of reads whose place was not resident.",
			func(c *engine.Counters) uint64 { return c.Miss.MissesReadDest }),
		word("misses_dropped_total", "Of the misses, those whose frame was left unreceived for want of room.",
			func(c *engine.Counters) uint64 { return c.Miss.MissesDropped }),
		word("misses_failed_total", "Misses that ended their operation, since the memory did not come in time.",
			func(c *engine.Counters) uint64 { return c.Miss.MissesFailed }),
	}
}

func spaceReadings() []reading[inspect.Status] {
	r := func(name, help string, kind prometheus.ValueType,
		read func(*inspect.SpacesStatus) float64) reading[inspect.Status] {
		return reading[inspect.Status]{desc("space_"+name, help, deviceLabels), kind,
			func(s *inspect.Status) float64 { return read(&s.Spaces) }}
	}
	count := func(name, help, key string) reading[inspect.Status] {
		return r(name, help, counter, func(s *inspect.SpacesStatus) float64 { return float64(s.Counters[key]) })
	}
	return []reading[inspect.Status]{
		{desc("spaces", "Spaces mapped.", deviceLabels), gauge,
			func(s *inspect.Status) float64 { return float64(s.Spaces.Spaces) }},
		r("pinned_bytes", "Bytes of spaces that are pinned.", gauge,
			func(s *inspect.SpacesStatus) float64 { return float64(s.PinnedBytes) }),
		r("filled_bytes", "Bytes of spaces that were filled on demand.", gauge,
			func(s *inspect.SpacesStatus) float64 { return float64(s.FilledBytes) }),
		r("filled_limit_bytes", "Bytes that all users' spaces may be filled with.", gauge,
			func(s *inspect.SpacesStatus) float64 { return float64(s.FilledLimit) }),
		count("lookups_total", "Uses of spaces by parts of operations.", "lookups"),
		count("hits_total", "Of those, the ones that found all of it resident.", "hits"),
		count("soft_hits_total", "Of those, the ones that found it unpinned and there (misses = \"inline\").", "soft"),
		count("cold_misses_total", "Chunks missed that were not resident before.", "cold"),
		count("capacity_misses_total", "Chunks missed that had been evicted.", "capacity"),
		count("full_total", "Misses that found nothing to evict.", "full"),
		count("pins_total", "Chunks filled and locked.", "pins"),
		count("pins_failed_total", "Chunks that could not be.", "pins_failed"),
		count("unpins_total", "Chunks unlocked.", "unpins"),
		count("evictions_total", "Chunks unlocked to make room.", "evictions"),
		count("prefetched_total", "Chunks asked for before an operation did.", "prefetched"),
		count("prefetched_used_total", "Of those, the ones used before they were evicted.", "used"),
		count("prefetched_wasted_total", "Of those, the ones evicted unused.", "wasted"),
	}
}
