package dsm

import (
	"time"

	"multiedge/internal/mono"
)

// Stats says what a rank has done since Run called its function, or since ResetStats. Times are of the monotonic clock;
// what is left of Total is the program's own.
type Stats struct {
	Operations    int // reads, writes and atomics on the memory of other ranks
	Fetches       int // reads of pages
	Pages         int // that were read
	Twins         int // copies made before writing
	Diffs         int // pages compared with their twins
	Runs          int // writes of changed bytes
	Bytes         int // that they carried
	Notices       int // pages that others said they had changed
	Brought       int // of them, those whose changes came with a barrier (Array.Follow)
	Stale         int // of them, those that were in use here
	Refreshes     int // of them, those that this rank was writing as well
	Overruns      int // times that a log had gone on too far to be read
	Locks         int // that were taken
	Waits         int // of them, those that another rank had
	Barriers      int
	Total         time.Duration
	Data          time.Duration // waiting for pages
	Flush         time.Duration // comparing pages and carrying changes home
	Acquire       time.Duration // reading logs and making pages stale
	Lock, Barrier time.Duration // waiting in them
}

// report says since when a rank counts, and whom it tells.
type report struct {
	began   mono.Time
	observe func(Stats) // Config.Observe
}

// observed tells the program what this rank has done.
func (m *Memory) observed() {
	if m.report.observe != nil {
		m.report.observe(m.Stats())
	}
}

// Stats returns what this rank has done.
func (m *Memory) Stats() Stats {
	s := m.stats
	s.Total = mono.Now().Sub(m.report.began)
	return s
}

// ResetStats begins to count anew.
func (m *Memory) ResetStats() { m.stats, m.report.began = Stats{}, mono.Now() }
