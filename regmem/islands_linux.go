package regmem

import (
	"os"
	"strconv"
	"strings"
)

// SpaceName is the name of the memory of spaces (Named).
const SpaceName = "edge-space"

// islands are the chunks of a space that are locked. Those that touch are one island: the kernel has a mapping for
// each, and one for what lies behind it. It allows a process so many (vm.max_map_count); where they are used up nobody
// can register memory, and the runtime ends the process. So spaces have a part of them, and beyond it their chunks are
// filled and mapped, but neither locked nor unlocked.
type islands struct {
	words map[uint64]uint64 // a bit for each chunk; a word without any is not there
	count int
}

// has returns 1 if a chunk is locked, else 0.
func (s *islands) has(chunk uint64) int { return int(s.words[chunk/64] >> (chunk % 64) & 1) }

// more is how many islands there are more with the chunk locked, or unlocked. The number before chunk 0 is the largest
// there is, which no chunk has.
func (s *islands) more(chunk uint64, locked bool) int {
	more := 1 - s.has(chunk-1) - s.has(chunk+1)
	switch {
	case locked == (s.has(chunk) == 1):
		return 0
	case locked:
		return more
	}
	return -more
}

// set notes that a chunk is locked, or unlocked.
func (s *islands) set(chunk uint64, locked bool) {
	s.count += s.more(chunk, locked)
	if s.words == nil {
		s.words = map[uint64]uint64{}
	}
	bit := uint64(1) << (chunk % 64)
	switch word := s.words[chunk/64]; {
	case locked:
		s.words[chunk/64] = word | bit
	case word&^bit == 0:
		delete(s.words, chunk/64)
	default:
		s.words[chunk/64] = word &^ bit
	}
}

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
