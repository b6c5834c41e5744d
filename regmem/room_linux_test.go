package regmem

import (
	"errors"
	"testing"
)

// Reservations add up, small ones are counted too, and what is done is given back.
func TestReserve(t *testing.T) {
	free, ok := procBytes("/proc/meminfo", "MemAvailable:")
	if !ok {
		t.Fatal("no MemAvailable in /proc/meminfo")
	}
	if g, ok := TightestGroup(); ok {
		free = min(free, g.Room()-leastSpared)
	}
	most := int(free - free/4) // once, but not twice
	for range 3 {
		done, err := Reserve(most)
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", most, free, err)
		}
		if _, err := Reserve(most); !errors.Is(err, ErrSize) && !errors.Is(err, ErrMemlock) {
			t.Errorf("%d bytes of %d are promised twice: %v", most, free, err)
		}
		done()
	}

	room.promised += 2 * free
	defer func() { room.promised -= 2 * free }()
	const piece = lookEvery / 4
	for n := 0; ; n += piece {
		if _, err := Reserve(piece); err != nil {
			break
		}
		if n > lookEvery {
			t.Fatalf("%d bytes are promised in small pieces where there is no room", n)
		}
	}
}
