// Edged is the daemon that owns a host's links and carries the operations of its processes.
//
//	edged --link eth1 --link eth2
//
// starts it with nothing but interfaces. Everything else is in the configuration file (edged --help,
// deploy/edged.toml).
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"multiedge/internal/buildinfo"
	"multiedge/internal/clidoc"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/inspect"
	"multiedge/internal/metrics"
)

// version can be set by the linker: -ldflags "-X main.version=1.2.3".
var version string

func init() { version = buildinfo.Version(version) }

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code: 0 for an orderly end, 1 for trouble, 2 for a wrong command line or configuration.
func run(args []string) int {
	var f flags
	parser, err := kong.New(&f, kong.Name("edged"),
		kong.Description("RDMA semantics over raw Ethernet or UDP: the daemon."),
		kong.Vars{"version": version}, kong.UsageOnError())
	if err != nil {
		return fail(1, err)
	}
	if clidoc.Complete(parser) {
		return 0
	}
	if _, err := parser.Parse(args); err != nil {
		return fail(2, fmt.Errorf("%w (edged --help lists the options)", err))
	}
	cfg, err := f.config()
	if err == nil {
		err = cfg.Normalize()
	}
	if err == nil {
		err = metrics.Check(cfg.Metrics)
	}
	if err != nil {
		return fail(2, err)
	}
	if f.Check {
		if err := cfg.CheckFiles(); err != nil {
			return fail(2, err)
		}
		for _, warning := range append(missingLinks(&cfg), cfg.AboveRoom()...) {
			fmt.Fprintln(os.Stderr, "edged: warning:", warning)
		}
		fmt.Println("the configuration is valid")
		return 0
	}
	if f.User != "" {
		if err := become(f.User, &cfg); err != nil {
			return fail(1, err)
		}
	}
	if err := serve(&f, cfg); err != nil {
		return fail(1, err)
	}
	return 0
}

// missingLinks says which links are no interfaces of this host now: no error, for they may come.
func missingLinks(cfg *config.Config) (list []string) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	for _, l := range cfg.Links {
		if l.Listen == "" && !slices.Contains(names, l.Name) {
			list = append(list, fmt.Sprintf("link %s: there is no such interface now; edged uses it once it is "+
				"there, and needs one link at least to start, but for wait_links. There are: %s", l.Name,
				strings.Join(names, ", ")))
		}
	}
	return list
}

func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "edged:", err)
	return code
}

// serve runs the daemon until a signal ends it.
func serve(f *flags, cfg config.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	level := new(slog.LevelVar)
	log := logger(cfg.Log, level)
	d, err := daemon.New(cfg, daemon.Options{Log: log, Version: version})
	if err != nil {
		return explain(err)
	}
	for _, warning := range cfg.AboveRoom() {
		log.Warn(warning)
	}
	if admins, err := cfg.ResolveAdmins(); err == nil && inspect.InContainer() {
		if text, remedy := inspect.SharedRoot(admins, os.Geteuid()); text != "" {
			log.Warn(text, "do", remedy)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.Metrics.Listen != "" {
		if _, err := metrics.Serve(ctx, cfg.Metrics, metrics.Handler(d, version), log, cancel); err != nil {
			d.Close()
			return err
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		supervise(ctx, f, d, log, level)
	}()
	err = d.Run(ctx)
	cancel(nil)
	<-done
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	log.Info("stopped")
	return err
}

// explain adds what only a program run by a person can know.
func explain(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%w\nedged is running as user %d; deploy/edged.service starts it with the rights it needs "+
			"and no others", err, os.Geteuid())
	}
	return err
}

// logger builds the logger; its level can be changed by a reload.
func logger(cfg config.Log, level *slog.LevelVar) *slog.Logger {
	setLevel(level, cfg.Level)
	o := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

func setLevel(v *slog.LevelVar, name string) {
	var l slog.Level
	if l.UnmarshalText([]byte(name)) == nil {
		v.Set(l)
	}
}
