package inspect

import "fmt"

// What doctor says about spaces: one that evicts what is used again soon spends its time pinning, and one that cannot
// be filled fails operations.

// thrashLookups is from how many uses on a space is judged, and thrashShare which part of them may miss what was
// evicted.
const (
	thrashLookups = 1000
	thrashShare   = 10 // a tenth
)

func (f *findings) spaces(snap *Snapshot) {
	for i := range snap.Regions {
		r := &snap.Regions[i]
		lookups, capacity := r.Counters["lookups"], r.Counters["capacity"]
		about := fmt.Sprintf("space %d of process %d", r.ID, r.PID)
		if lookups >= thrashLookups && capacity > lookups/thrashShare {
			f.add(FindingWarning, about, fmt.Sprintf("of %d uses %d missed what had been unpinned to make room: it "+
				"may pin %d MiB, and its program uses more than that again and again", lookups, capacity, r.Budget>>20),
				"have the program ask for more (space.Options.Pin), or for policy MRU if it goes round and round")
		}
		if failed := r.Counters["pins_failed"]; failed > 0 {
			f.add(FindingWarning, about, fmt.Sprintf("%d times a chunk could not be filled or locked: operations that "+
				"need it fail after a second", failed),
				"raise limits.filled or limits.filled_total, or the control group's memory; see edgectl status")
		}
	}
	s := &snap.Status.Spaces
	if s.FilledLimit > 0 && s.FilledBytes > s.FilledLimit/10*9 {
		f.add(FindingWarning, "spaces", fmt.Sprintf("%d MiB of spaces are filled, of %d that all users may fill",
			s.FilledBytes>>20, s.FilledLimit>>20), "close spaces that are not needed, or raise limits.filled_total")
	}
}
