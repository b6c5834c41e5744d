package regmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// SpaceName is the name of the memory of spaces (Named).
const SpaceName = "edge-space"

// islands bounds the mappings that a process has because of spaces. Locked pieces that do not touch are mappings of
// their own, and so is what lies between them. The kernel allows a process so many (vm.max_map_count); where they are
// used up nobody can register memory, and the runtime ends the process. So spaces have a part of them, and beyond it
// their chunks are filled and mapped, but neither locked nor unlocked.
type islands struct {
	most  int           // mappings; 0: no limit
	count func() int    // how many there are
	left  int           // calls of may until they are counted anew
	at    time.Duration // when they were
	full  bool          // there were too many then, or nearly
}

// islandsTime is how long nothing is locked while there are too many: counting them takes milliseconds.
const islandsTime = time.Second

// SpaceMappings is how many mappings spaces may be cut into, of so many that the kernel allows.
func SpaceMappings(allowed int) int { return allowed / 4 }

// MostMappings is how many mappings the kernel allows a process.
func MostMappings() int {
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return 65530 // the kernel's default
}

// spaceMappings counts those of this process.
func spaceMappings() int {
	maps, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(maps, []byte(SpaceName))
}

// may reports whether a piece may be locked or unlocked, which can make two mappings more.
func (i *islands) may(now time.Duration) bool {
	if i.most == 0 {
		return true
	}
	if i.left == 0 && (!i.full || now-i.at >= islandsTime) {
		room := max(0, i.most-i.count())
		i.at, i.left, i.full = now, room/2, room < i.most/8
	}
	if i.left == 0 {
		return false
	}
	i.left--
	return true
}
