package faults

import (
	"context"
	"errors"
	"fmt"
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

// collect collects the garbage of this process and returns unused memory to the kernel. It writes the resident memory
// that remains, in bytes, to a file beside the socket. Between two collections, memory says more about the collector
// than about the process. The daemon goes on meanwhile, so the least of three measurements counts.
func collect(socket string) error {
	runtime.GC() // the content of pools survives one collection
	kept := uint64(math.MaxUint64)
	for range 3 {
		debug.FreeOSMemory()
		// counted page by page: VmRSS may lag by some hundred kB
		kept = min(kept, proc.CountedResident(os.Getpid()))
	}
	if kept == 0 {
		return errors.New("/proc does not give the resident memory of this process: smaps_rollup is missing")
	}
	name := keptFile(socket)
	if err := os.WriteFile(name+".new", fmt.Append(nil, kept), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func keptFile(socket string) string { return socket + ".kept" }
