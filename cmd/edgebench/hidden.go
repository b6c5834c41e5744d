package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"multiedge/bench"
	"multiedge/bench/contender"
	"multiedge/bench/faults"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/metrics"
)

// labDaemonCmd is a daemon in a lab host: edged's own code, so that no other program has to be found.
type labDaemonCmd struct {
	Config string `arg:"" help:"Configuration in TOML."`
}

func (c *labDaemonCmd) Run(ctx context.Context) error {
	cfg, err := config.Parse([]byte(c.Config), "lab")
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return err
	}
	collect := make(chan os.Signal, 1)
	signal.Notify(collect, faults.CollectSignal)
	go func() {
		for range collect {
			if err := faults.Collect(cfg.Socket); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("node", cfg.Name)
	d, err := daemon.New(cfg, daemon.Options{Log: log})
	if err != nil {
		return err
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, faults.ReloadSignal)
	go func() {
		for range reload {
			if err := faults.Reload(d, cfg.Socket); err != nil {
				log.Error("the configuration was not reloaded", "error", err)
			}
		}
	}()
	if cfg.Metrics.Listen != "" {
		if _, err := metrics.Serve(ctx, cfg.Metrics, metrics.Handler(d, "lab"), log,
			func(err error) { log.Error("metrics", "error", err) }); err != nil {
			d.Close()
			return err
		}
	}
	return d.Run(ctx)
}

// labWorkerCmd is one end of a benchmark in a lab host.
type labWorkerCmd struct {
	Job string `arg:"" help:"What to do, in JSON."`
}

func (c *labWorkerCmd) Run(ctx context.Context) error { return bench.WorkJSON(ctx, c.Job, os.Stdout) }

// labStudyCmd is one end of a study in a lab host.
type labStudyCmd struct {
	Job string `arg:"" help:"What to do, in JSON."`
}

func (c *labStudyCmd) Run(ctx context.Context) error { return bench.WorkStudy(ctx, c.Job, os.Stdout) }

// labEnterCmd runs a program with the host's own view of /sys.
type labEnterCmd struct {
	Argv []string `arg:"" passthrough:""`
}

func (c *labEnterCmd) Run() error { return contender.Enter(c.Argv) }

// labFaultCmd is one process of a fault scenario in a lab host.
type labFaultCmd struct {
	Job string `arg:"" help:"What to do, in JSON."`
}

func (c *labFaultCmd) Run(ctx context.Context) error {
	return faults.WorkJSON(ctx, c.Job, os.Stdin, os.Stdout)
}

// labConfinedCmd runs a hidden subcommand that may lock little memory.
type labConfinedCmd struct {
	Bytes string   `arg:"" help:"Limit of locked memory in bytes."`
	Argv  []string `arg:"" passthrough:""`
}

func (c *labConfinedCmd) Run() error { return confine(c.Bytes, c.Argv) }

// confine starts this program again, in this process, without CAP_IPC_LOCK for good: with it the limit would not hold.
func confine(bytes string, argv []string) error {
	limit, err := strconv.ParseUint(bytes, 10, 64)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the bounding set is the thread's, and exec keeps that of the thread which calls it
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_IPC_LOCK, 0, 0, 0); err != nil {
		return fmt.Errorf("giving CAP_IPC_LOCK up: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("limiting locked memory: %w", err)
	}
	return again(argv)
}

// labGroupedCmd runs a hidden subcommand in a control group.
type labGroupedCmd struct {
	Dir  string   `arg:"" help:"Directory of the group."`
	Argv []string `arg:"" passthrough:""`
}

func (c *labGroupedCmd) Run() error {
	if err := os.WriteFile(filepath.Join(c.Dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("entering a control group: %w", err)
	}
	return again(c.Argv)
}

// again starts this program with other arguments, in this process.
func again(argv []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, append([]string{os.Args[0]}, argv...), os.Environ())
}
