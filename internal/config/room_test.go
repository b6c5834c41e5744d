package config

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Fewer clients are admitted where the process may open few files, so that one of them never finds the daemon without
// descriptors.
func TestRoomForClients(t *testing.T) {
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	low := unix.Rlimit{Cur: uint64(openDescriptors() + 256), Max: old.Max}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	n := clientRoom()
	c := Config{Name: "a", Links: []Link{{Name: "eth0"}}}
	err := c.Normalize()
	if restore := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); restore != nil {
		t.Fatal(restore)
	}
	if err != nil || c.Limits.Clients != n {
		t.Errorf("%d clients, want %d: %v", c.Limits.Clients, n, err)
	}
	if n < 1 || n*filesPerClient+MoreControls > 256 {
		t.Errorf("%d clients with %d descriptors each, of 256", n, filesPerClient)
	}
	if n := clientRoom(); n < 256 && old.Cur >= 8192 {
		t.Errorf("%d clients where %d files may be open", n, old.Cur)
	}
}

// The default limit of regions leaves mappings to the runtime; memory limits leave some to the host.
func TestRoomOfTheHost(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		t.Fatal("what mappings are limited to cannot be read: is /proc mounted? ", err)
	}
	most := 0
	for _, d := range strings.TrimSpace(string(text)) {
		most = most*10 + int(d-'0')
	}
	if n := mappingRoom(); n > most-most/8 || n < most/2 {
		t.Errorf("%d regions where %d mappings are allowed", n, most)
	}
	c, mappings := Config{Name: "a", Links: []Link{{Name: "eth0"}}}, mappingRoom()
	must(t, c.Normalize())
	if l := c.Limits; l.RegionsTotal > max(mappings, mappingRoom()) ||
		l.PinnedTotal+l.Reserve > memoryRoom() || l.Pinned > l.PinnedTotal || l.Reserve < leastReserve {
		t.Errorf("%+v, memory %v", l, memoryRoom())
	}
}

// Limits above what the host has are told of; the defaults are not.
func TestLimitsAboveTheHost(t *testing.T) {
	for _, tc := range []struct {
		change func(*Limits)
		want   string
	}{
		{func(*Limits) {}, ""},
		{func(l *Limits) { l.RegionsTotal = 2 * mappingRoom() }, "limits.regions_total"},
		{func(l *Limits) { l.Clients = 2*clientRoom() + 2 }, "limits.clients"},
		{func(l *Limits) { l.PinnedTotal = memoryRoom() }, "limits.pinned_total"},
		{func(l *Limits) { l.Reserve = 2 * memoryRoom() }, "limits.pinned_total"},
	} {
		c := Config{Name: "a", Links: []Link{{Name: "eth0"}}}
		must(t, c.Normalize())
		tc.change(&c.Limits)
		list := c.AboveRoom()
		if tc.want == "" && len(list) > 0 || tc.want != "" && (len(list) != 1 || !strings.HasPrefix(list[0], tc.want)) {
			t.Errorf("%s: %q", tc.want, list)
		}
	}
}
