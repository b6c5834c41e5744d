package inspect

import (
	"fmt"
	"os"

	"multiedge/internal/config"

	"golang.org/x/sys/unix"
)

// memlockLimit is how many bytes this process may lock, besides what the configuration allows; 0: that alone limits it.
func memlockLimit() (uint64, error) {
	if hasCapability(unix.CAP_IPC_LOCK) {
		return 0, nil
	}
	var rl unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &rl); err != nil {
		return 0, err
	}
	if rl.Cur == unix.RLIM_INFINITY {
		return 0, nil
	}
	return max(rl.Cur, 1), nil
}

// memlock looks at how much memory can be registered.
func (f *findings) memlock() {
	limit, err := memlockLimit()
	switch {
	case err != nil:
		f.add(FindingWarning, "memlock", "the limit cannot be read: "+err.Error(), "")
	case limit == 0:
		f.add(FindingOK, "memlock", "registered memory is limited by limits.pinned and limits.pinned_total only", "")
	default:
		f.tightMemlock(limit, os.Getenv("INVOCATION_ID") != "")
	}
}

// tightMemlock tells of a limit of the process, of a unit of systemd or of a shell. A unit has LimitMEMLOCK=infinity
// already (deploy/edged.service): systemd could not raise the limit, as in a container without CAP_SYS_RESOURCE.
func (f *findings) tightMemlock(limit uint64, unit bool) {
	remedy := "grant CAP_IPC_LOCK (setcap cap_net_raw,cap_ipc_lock+ep on edged), or raise \"ulimit -l\""
	if unit {
		remedy = "systemctl edit edged: under [Service] AmbientCapabilities=CAP_IPC_LOCK and " +
			"CapabilityBoundingSet=CAP_NET_RAW CAP_IPC_LOCK; LimitMEMLOCK=infinity has no effect where systemd may " +
			"not raise limits, as in a container"
	}
	severity := FindingWarning
	if limit < 64<<20 {
		severity = FindingProblem
	}
	f.add(severity, "memlock", fmt.Sprintf("RLIMIT_MEMLOCK: all clients together can register %v", config.Size(limit)),
		remedy)
}
