package faults

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/metrics"
)

// Signals to the daemons of a lab. SIGHUP, which makes edged reload, ends this program.
const (
	collectSignal = syscall.SIGUSR1 // call collect
	reloadSignal  = syscall.SIGUSR2 // read configFile
)

func init() { kit.DaemonHooks = append(kit.DaemonHooks, attend) }

// attend makes a daemon of a lab obey these signals and serve its metrics.
func attend(ctx context.Context, d *daemon.Daemon, cfg config.Config, log *slog.Logger) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, collectSignal, reloadSignal)
	go func() {
		for s := range told {
			do := collect
			if s == reloadSignal {
				do = func(socket string) error { return reload(d, socket) }
			}
			if err := do(cfg.Socket); err != nil {
				log.Error(s.String(), "error", err)
			}
		}
	}()
	if cfg.Metrics.Listen == "" {
		return nil
	}
	_, err := metrics.Serve(ctx, cfg.Metrics, metrics.Handler(d, "lab"), log,
		func(err error) { log.Error("metrics", "error", err) })
	return err
}

// configFile is where a lab's daemon looks for its configuration when it gets reloadSignal.
func configFile(socket string) string { return socket + ".toml" }

// reload does what SIGHUP does to edged. A configuration that cannot be used changes nothing.
func reload(d *daemon.Daemon, socket string) error {
	cfg, err := config.Load(configFile(socket))
	if err != nil {
		return err
	}
	return d.Reload(cfg)
}

// Kept is the resident memory that a daemon keeps when it is idle and has collected its garbage, in bytes, and what it
// consists of: what grows, says why.
type Kept struct {
	Resident uint64 `json:"resident"`
	Mapped   uint64 `json:"mapped"` // of files, which is code, and of shared memory
	Heap     uint64 `json:"heap"`   // spans of the heap in use
	Stacks   uint64 `json:"stacks"` // spans of stacks in use
	Tables   uint64 `json:"tables"` // of the Go runtime: spans, caches, goroutines, the collector
}

// collect collects the garbage of this process and returns unused memory to the kernel. It writes what remains to a
// file beside the socket. Between two collections, memory says more about the collector than about the process. The
// daemon goes on meanwhile, so the least of three measurements counts.
func collect(socket string) error {
	runtime.GC() // the content of pools survives one collection
	least := Kept{Resident: math.MaxUint64}
	for range 3 {
		debug.FreeOSMemory()
		// counted page by page: VmRSS may lag by some hundred kB
		resident, anonymous := proc.CountedResident(os.Getpid())
		if resident < least.Resident {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			least = keptOf(resident, anonymous, &m)
		}
	}
	if least.Resident == 0 {
		return errors.New("/proc does not give the resident memory of this process: smaps_rollup is missing")
	}
	text, err := json.Marshal(least)
	if err != nil {
		return err
	}
	name := keptFile(socket)
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// keptOf tells what resident memory consists of, of which so much is anonymous.
func keptOf(resident, anonymous uint64, m *runtime.MemStats) Kept {
	return Kept{Resident: resident, Mapped: resident - anonymous, Heap: m.HeapInuse, Stacks: m.StackInuse,
		Tables: m.MSpanInuse + m.MCacheInuse + m.BuckHashSys + m.GCSys + m.OtherSys}
}

func keptFile(socket string) string { return socket + ".kept" }
