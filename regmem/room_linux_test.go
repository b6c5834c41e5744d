package regmem

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
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

	const piece = lookEvery / 4
	room.promised += 2 * free
	defer func() { room.promised -= 2 * free }()
	for n := 0; ; n += piece {
		if _, err := Reserve(piece); err != nil {
			break
		}
		if n > lookEvery {
			t.Fatalf("%d bytes are promised in small pieces where there is no room", n)
		}
	}
}

// Without a look more is granted than lookEvery only where the last one was just now, and then a small part of what it
// found beyond what is promised and spared.
func TestReserveUnlooked(t *testing.T) {
	room.Lock()
	defer room.Unlock()
	promised, free, at := room.promised, room.free, room.at
	defer func() { room.promised, room.free, room.at = promised, free, at }()
	fresh := time.Now().Add(time.Hour) // however long the test takes
	taken := max(room.spared, leastSpared)
	for _, c := range []struct {
		promised, free uint64
		at             time.Time
		want           uint64
	}{
		{0, taken + 1<<40, fresh, lookMost}, {0, taken + 128<<20, fresh, 2 << 20}, {0, taken + 1<<20, fresh, lookEvery},
		{0, taken / 2, fresh, lookEvery}, {1 << 40, taken + 1<<40, fresh, lookEvery},
		{0, taken + 1<<40, time.Now().Add(-2 * lookFresh), lookEvery},
		{0, taken + 1<<30, time.Now().Add(-lookFresh / 10), lookEvery}, // which could be full by now
		{0, taken + 1<<40, time.Now().Add(-lookFresh / 10), lookMost},
	} {
		room.promised, room.free, room.at = c.promised, c.free, c.at
		if got := unlooked(); got != c.want {
			t.Errorf("%d bytes free, %d promised: %d may be granted, want %d", c.free, c.promised, got, c.want)
		}
	}
}

// A file of the kernel's is read to its end, whatever its length.
func TestReadText(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 100_000} {
		file, want := filepath.Join(t.TempDir(), "file"), bytes.Repeat([]byte("abc"), n/3+1)[:n]
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readText(file); err != nil || got != string(want) {
			t.Errorf("of %d bytes it reads %d, %v", n, len(got), err)
		}
	}
	if _, err := readText("/proc/self/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := readText("/proc/self"); err == nil {
		t.Error("a folder is read")
	}
}
