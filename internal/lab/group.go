package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryGroup is a control group that limits the memory of the processes in it. It is empty at first and stays until
// Close.
type MemoryGroup struct {
	dir                 string
	used, events, limit string // files
}

// groupForms are where the memory controller may be, version 1 first: it is in one hierarchy only.
var groupForms = []struct{ top, limit, used, events string }{
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"},
	{"/sys/fs/cgroup", "memory.max", "memory.current", "memory.events"},
	{"/sys/fs/cgroup/unified", "memory.max", "memory.current", "memory.events"},
}

// NewMemoryGroup makes a control group whose processes may use so many bytes. It takes root and a memory controller
// that can be written; an error says what is missing. The caller closes it.
func NewMemoryGroup(bytes uint64) (*MemoryGroup, error) {
	var why []error
	for _, form := range groupForms {
		g := &MemoryGroup{used: form.used, events: form.events, limit: form.limit}
		err := g.make(form.top, bytes)
		if err == nil {
			return g, nil
		}
		why = append(why, err)
	}
	return nil, fmt.Errorf("lab: no control group that limits memory can be made here; run as root where the memory "+
		"controller is mounted writable "+
		"(cgroup v1 at %s, or v2 at %s with memory in cgroup.subtree_control): %w", groupForms[0].top,
		groupForms[1].top, errors.Join(why...))
}

func (g *MemoryGroup) make(top string, bytes uint64) (err error) {
	if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
		return err // no hierarchy is mounted there, and a directory would be made in something else
	}
	if g.dir, err = os.MkdirTemp(top, "multiedge-"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(g.dir, g.limit), []byte(strconv.FormatUint(bytes, 10)), 0); err != nil {
		return errors.Join(err, g.Close())
	}
	return nil
}

// Dir is where the group's files are. A process that writes its number to cgroup.procs there is in the group.
func (g *MemoryGroup) Dir() string { return g.dir }

// Used is how many bytes the processes in the group use.
func (g *MemoryGroup) Used() (uint64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.used))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// Killed is how many processes the kernel killed for want of memory in the group.
func (g *MemoryGroup) Killed() (uint64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.events))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.ParseUint(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("lab: %s of %s does not count what was killed", g.events, g.dir)
}

// Close removes the group. Its processes must have ended.
func (g *MemoryGroup) Close() error { return os.Remove(g.dir) }
