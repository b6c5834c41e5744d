package main

import (
	"context"
	"log/slog"
	"os"

	"multiedge/bench"
	"multiedge/bench/contender"
	"multiedge/internal/daemon"
)

// labDaemonCmd is a daemon in a lab host: edged's own code, so that no other program has to be found.
type labDaemonCmd struct {
	Config string `arg:"" help:"Configuration in TOML."`
}

func (c *labDaemonCmd) Run(ctx context.Context) error {
	cfg, err := daemon.Parse([]byte(c.Config), "lab")
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("node", cfg.Name)
	d, err := daemon.New(cfg, daemon.Options{Log: log})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// labWorkerCmd is one end of a benchmark in a lab host.
type labWorkerCmd struct {
	Job string `arg:"" help:"What to do, in JSON."`
}

func (c *labWorkerCmd) Run(ctx context.Context) error { return bench.WorkJSON(ctx, c.Job, os.Stdout) }

// labEnterCmd runs a program with the host's own view of /sys.
type labEnterCmd struct {
	Argv []string `arg:"" passthrough:""`
}

func (c *labEnterCmd) Run() error { return contender.Enter(c.Argv) }
