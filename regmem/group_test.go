package regmem

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestGroupDirs(t *testing.T) {
	const (
		v1      = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
		v1other = "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
		v2      = "41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		root    = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
	)
	for _, c := range []struct {
		what, cgroup, mounts string
		want                 []string
	}{
		{"version 2 under systemd", "0::/system.slice/edged.service\n", root + v2,
			[]string{"/sys/fs/cgroup/system.slice/edged.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"}},
		{"version 1", "4:memory:/a/b\n3:cpu:/c\n", root + v1other + v1, []string{"/sys/fs/cgroup/memory/a/b",
			"/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"}},
		{"version 1, controllers together", "4:cpu,memory:/a\n", "35 31 0:32 / /cg rw - cgroup none rw,cpu,memory\n",
			[]string{"/cg/a", "/cg"}},
		{"both", "4:memory:/a\n0::/b\n", v1 + strings.Replace(v2, "/sys/fs/cgroup", "/sys/fs/cgroup/unified", 1),
			[]string{"/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified/b",
				"/sys/fs/cgroup/unified"}},
		{"a container that is shown its own part", "0::/docker/abc\n",
			"41 31 0:38 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n", []string{"/sys/fs/cgroup"}},
		{"below the part shown", "0::/docker/abc/x\n", "41 31 0:38 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
			[]string{"/sys/fs/cgroup/x", "/sys/fs/cgroup"}},
		{"a namespace of its own", "0::/\n", v2, []string{"/sys/fs/cgroup"}},
		{"another part is shown", "0::/docker/abcd\n", "41 31 0:38 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
			nil},
		{"the group is outside the namespace", "0::/../other\n", v2, nil},
		{"the mount is outside the namespace", "0::/\n", "41 31 0:38 /.. /sys/fs/cgroup ro - cgroup2 cgroup ro\n", nil},
		{"a colon and a blank", "0::/a:b c\n", "41 31 0:38 / /my\\040groups rw - cgroup2 none rw\n",
			[]string{"/my groups/a:b c", "/my groups"}},
		{"no memory controller", "3:cpu:/c\n", root + v1other, nil},
		{"nothing mounted", "0::/a\n", root, nil},
		{"nonsense", "0:\n:::\nx\n", "1 2\n - \n1 2 3 4 5 - cgroup2\n\n", nil},
		{"empty", "", "", nil},
	} {
		if got := groupDirs(c.cgroup, c.mounts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestGroupIn(t *testing.T) {
	const none = "9223372036854771712\n"
	for _, c := range []struct {
		what  string
		files map[string]string
		want  Group // File is empty where there is no limit
		room  uint64
	}{
		{"version 2", map[string]string{"memory.max": "1000\n", "memory.high": "max\n", "memory.current": "700\n",
			"memory.stat": "anon 1\ninactive_file 100\nactive_file 50\n"},
			Group{"/g", "memory.max", 1000, 550}, 450},
		{"the lower of two", map[string]string{"memory.max": "1000\n", "memory.high": "800\n",
			"memory.current": "700\n"}, Group{"/g", "memory.high", 800, 700}, 100},
		{"version 2, no limit", map[string]string{"memory.max": "max\n", "memory.high": "max\n",
			"memory.current": "700\n"}, Group{}, 0},
		{"a limit of nothing", map[string]string{"memory.max": "0\n", "memory.current": "700\n"},
			Group{"/g", "memory.max", 0, 700}, 0},
		{"version 1", map[string]string{"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "700\n",
			"memory.stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 1\n"},
			Group{"/g", "memory.limit_in_bytes", 1000, 599}, 401},
		{"version 1, no limit", map[string]string{"memory.limit_in_bytes": none, "memory.usage_in_bytes": "700\n"},
			Group{}, 0},
		{"cache counted late", map[string]string{"memory.max": "1000\n", "memory.current": "700\n",
			"memory.stat": "inactive_file 900\n"}, Group{"/g", "memory.max", 1000, 0}, 1000},
		{"above the limit", map[string]string{"memory.max": "1000\n", "memory.current": "1700\n"},
			Group{"/g", "memory.max", 1000, 1700}, 0},
		{"nonsense", map[string]string{"memory.max": "-1\n", "memory.limit_in_bytes": "x"}, Group{}, 0},
		{"nothing there", nil, Group{}, 0},
	} {
		got, ok := groupIn("/g", func(file string) (string, error) {
			if text, ok := c.files[strings.TrimPrefix(file, "/g/")]; ok {
				return text, nil
			}
			return "", fs.ErrNotExist
		})
		if ok != (c.want.File != "") || got != c.want || got.Room() != c.room {
			t.Errorf("%s: %+v %t, room %d; want %+v, room %d", c.what, got, ok, got.Room(), c.want, c.room)
		}
	}
}

func TestGroupFits(t *testing.T) {
	const spared = 16 << 20
	for _, c := range []struct {
		limit, used, n uint64
		want           bool
	}{
		{128 << 20, 0, 64 << 20, true}, {128 << 20, 0, 128<<20 - spared, false}, {128 << 20, 48 << 20, 64<<20 - 64<<12,
			true},
		{128 << 20, 48 << 20, 64 << 20, false}, {spared, 0, 0, true}, {spared, 0, 1, false}, {spared, 2 * spared, 0,
			false}, {spared, 0, 1 << 62, false},
	} {
		g := Group{Limit: c.limit, Used: c.used}
		if got := g.fits(c.n, spared); got != c.want {
			t.Errorf("%d bytes in %+v: %t", c.n, g, got)
		}
	}
	err := error(&GroupError{Need: 77, Spared: 33, Group: Group{"/g", "memory.max", 1000, 550}})
	if !errors.Is(err, ErrMemlock) {
		t.Errorf("%v is not ErrMemlock", err)
	}
	for _, s := range []string{"77", "33", "limits.reserve", "/g", "memory.max", "1000", "550", "MemoryMax="} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q is missing in: %v", s, err)
		}
	}
}
