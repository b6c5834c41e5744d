package kit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
)

// DaemonHooks are called in each daemon of a lab before it serves clients. Packages that do to daemons what others do
// not add theirs when they are initialised.
var DaemonHooks []func(ctx context.Context, d *daemon.Daemon, cfg config.Config, log *slog.Logger) error

// runDaemon is a daemon in a lab host: edged's own code, so that no other program has to be found.
func runDaemon(ctx context.Context, text string) error {
	return Try(func() {
		cfg := Get(config.Parse([]byte(text), "lab"))
		var level slog.Level
		Check(level.UnmarshalText([]byte(cfg.Log.Level)))
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("node", cfg.Name)
		d := Get(daemon.New(cfg, daemon.Options{Log: log}))
		for _, hook := range DaemonHooks {
			if err := hook(ctx, d, cfg, log); err != nil {
				d.Close()
				Check(err)
			}
		}
		Check(d.Run(ctx))
	})
}

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

// group starts this program again, in this process, in the control group of a directory.
func group(dir string, argv []string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("entering a control group: %w", err)
	}
	return again(argv)
}

// again starts this program with other arguments, in this process.
func again(argv []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, append([]string{os.Args[0]}, argv...), os.Environ())
}
