package config

import (
	"bytes"
	"fmt"
	"os"

	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// The host's limits for this process. Limits over all users stay below them, with a reserve: a process that reaches a
// limit of the host is killed, or its runtime dies.

// memoryRoom is the memory of the host, or the limit of this process's control group if that is less.
func memoryRoom() Size {
	room := hostMemory()
	if g, ok := regmem.TightestGroup(); ok {
		room = min(room, Size(g.Limit))
	}
	return room
}

// Bounds of the default of limits.reserve, which is one part in 32 of the memory between them.
const (
	leastReserve = 16 << 20
	mostReserve  = 1 << 30
)

func defaultReserve(room Size) Size { return min(max(room/32, leastReserve), mostReserve) }

// mappingRoom is how many regions can be mapped: vm.max_map_count without the present mappings, those that spaces may
// be cut into, and one part in eight. That part is for queues, threads and the runtime, which ends the process when it
// is refused a mapping.
func mappingRoom() int {
	most := regmem.MostMappings()
	maps, _ := os.ReadFile("/proc/self/maps")
	return max(most-bytes.Count(maps, []byte("\n"))-regmem.SpaceMappings(most)-most/8, 1)
}

// Constants that are not settings; the defaults of settings depend on them.
const (
	// MaxOffered is how many regions of a client may be offered and not yet mapped. Each holds a descriptor, perhaps in
	// a socket that the client does not read.
	MaxOffered = 4
	// MoreControls is how many control sockets there may be in addition to two for each client.
	MoreControls = 16
	// filesPerClient counts the descriptors of one client at most: its control socket, that of one who looks on, two
	// doorbells, and the memory that is offered.
	filesPerClient = 2 + 2 + MaxOffered
)

// AboveRoom lists the limits that promise more than this host has for this process. They are no errors, since programs
// may never ask for as much, and the host may get more. But the kernel, not a limit, refuses a program that does ask.
func (c *Config) AboveRoom() (list []string) {
	l, mappings, clients, memory := c.Limits, mappingRoom(), clientRoom(), memoryRoom()
	// defaults are what there was room for a moment ago
	if l.RegionsTotal > mappings+mappings/64 {
		list = append(list, fmt.Sprintf("limits.regions_total: %d regions, but there is room for only %d mappings; "+
			"lower it, or raise vm.max_map_count", l.RegionsTotal, mappings))
	}
	if l.Clients > clients+clients/64+1 {
		list = append(list, fmt.Sprintf("limits.clients: %d clients, but descriptors for only %d; lower it, or "+
			"raise LimitNOFILE in the unit (ulimit -n)", l.Clients, clients))
	}
	if l.PinnedTotal > memory-min(l.Reserve, memory) {
		list = append(list, fmt.Sprintf("limits.pinned_total: %v, but of the %v of memory limits.reserve keeps %v "+
			"free; lower one of the two", l.PinnedTotal, memory, l.Reserve))
	}
	return list
}

// clientRoom is how many clients there are descriptors for: RLIMIT_NOFILE without the open descriptors, those for
// spaces, and one part in eight, for links and files.
func clientRoom() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return MaxLimit
	}
	most := int(min(limit.Cur, 1<<30))
	return max((most-openDescriptors()-most/8-most/spaceFiles-MoreControls)/filesPerClient, 1)
}

// spaceFiles is the part of the descriptors that spaces may hold: one in so many.
const spaceFiles = 4

// SpaceRoom is how many spaces there are descriptors for. Each holds one as long as it is there.
func SpaceRoom() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return MaxLimit
	}
	return max(int(min(limit.Cur, 1<<30))/spaceFiles, 1)
}

func openDescriptors() int {
	f, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return len(names)
}
