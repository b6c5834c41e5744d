package regmem

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Group is a control group that limits the memory of this process. Both figures are bytes.
type Group struct {
	Dir   string // where its files are
	File  string // which of them is the limit: memory.max, memory.high, or memory.limit_in_bytes of version 1
	Limit uint64
	Used  uint64 // what the kernel cannot take back: page cache of files is not counted
}

// Room is how much more fits, in bytes.
func (g *Group) Room() uint64 { return g.Limit - min(g.Used, g.Limit) }

// fits reports whether n bytes can be filled, with the tables that map them and what is spared.
func (g *Group) fits(n, spared uint64) bool { return n+n/256+spared <= g.Room() }

// groupDirs returns where the control groups are that may limit a process's memory: its own, then those around it as
// far as they are shown. The arguments are what /proc/self/cgroup and /proc/self/mountinfo hold. Version 1 and version
// 2 may be there together.
func groupDirs(cgroup, mountinfo string) (dirs []string) {
	for line := range strings.Lines(mountinfo) {
		left, right, _ := strings.Cut(line, " - ")
		// number, parent, device, root, mount point ... type, source, options
		mount, super := strings.Fields(left), strings.Fields(right)
		if len(mount) < 5 || len(super) < 3 {
			continue
		}
		one := super[0] == "cgroup" && slices.Contains(strings.Split(super[2], ","), "memory")
		if !one && super[0] != "cgroup2" {
			continue
		}
		root, top := unescape(mount[3]), unescape(mount[4])
		group, ok := groupPath(cgroup, one)
		below, inside := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
		if !ok || !inside || below != "" && below[0] != '/' || strings.Contains(group+root+"/", "/../") {
			continue // of another namespace: it is not shown here
		}
		for dir := path.Join(top, below); ; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == top {
				break
			}
		}
	}
	return dirs
}

// groupPath finds the group in the hierarchy of the memory controller (version one) or in the unified one. Lines are
// number:controllers:path.
func groupPath(cgroup string, one bool) (string, bool) {
	for line := range strings.Lines(cgroup) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && (one && slices.Contains(strings.Split(f[1], ","), "memory") || !one && f[0] == "0" &&
			f[1] == "") {
			return f[2], true
		}
	}
	return "", false
}

// unescape undoes what mountinfo does to blanks and the like: \040.
func unescape(s string) string {
	for i := 0; i+4 <= len(s); i++ {
		if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); s[i] == '\\' && err == nil {
			s = s[:i] + string([]byte{byte(n)}) + s[i+4:]
		}
	}
	return s
}

// unlimited and more is no limit: version 1 writes the largest number of whole pages instead.
const unlimited = 1 << 62

// groupIn reads the limit of the group whose files are in dir, by read, which returns the contents of a file. ok is
// false where there is none.
func groupIn(dir string, read func(string) (string, error)) (g Group, ok bool) {
	for _, version := range []struct {
		limits []string
		used   string
		cache  []string // lines of memory.stat
	}{
		{[]string{"memory.max", "memory.high"}, "memory.current", []string{"inactive_file", "active_file"}},
		{[]string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", []string{"total_inactive_file",
			"total_active_file"}},
	} {
		number := func(file string) (uint64, bool) {
			text, err := read(path.Join(dir, file))
			if err != nil {
				return 0, false
			}
			n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64) // "max" is no number
			return n, err == nil
		}
		for _, file := range version.limits {
			if n, is := number(file); is && n < unlimited && (!ok || n < g.Limit) {
				g, ok = Group{Dir: dir, File: file, Limit: n}, true
			}
		}
		if !ok {
			continue
		}
		g.Used, _ = number(version.used)
		stat, _ := read(path.Join(dir, "memory.stat"))
		for line := range strings.Lines(stat) {
			if f := strings.Fields(line); len(f) == 2 && slices.Contains(version.cache, f[0]) {
				n, _ := strconv.ParseUint(f[1], 10, 64)
				g.Used -= min(n, g.Used)
			}
		}
		return g, true
	}
	return g, false
}
