package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"multiedge/internal/daemon"
)

// supervise talks to systemd: ready, watchdog, reload, stopping. Without systemd it only reloads on SIGHUP. It returns
// when ctx ends.
func supervise(ctx context.Context, f *flags, d *daemon.Daemon, log *slog.Logger, level *slog.LevelVar) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	select {
	case <-ctx.Done():
		return
	case <-d.Ready():
	}
	name, id := d.Node()
	tell(log, fmt.Sprintf("%s\nSTATUS=Serving as %s (%s)", sd.SdNotifyReady, name, id))
	defer tell(log, sd.SdNotifyStopping)
	var watchdog <-chan time.Time
	interval, err := sd.SdWatchdogEnabled(false)
	if err == nil && interval > 0 {
		t := time.NewTicker(interval / 3)
		defer t.Stop()
		watchdog = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-watchdog:
			if d.Alive(interval / 2) { // a shard that is stuck is not kept alive
				tell(log, sd.SdNotifyWatchdog)
			}
		case <-hup:
			tell(log, sd.SdNotifyReloading+"\n"+sd.SdNotifyMonotonicUsec())
			reload(f, d, log, level)
			tell(log, sd.SdNotifyReady)
		}
	}
}

// reload reads the configuration again. A configuration that cannot be used changes nothing.
func reload(f *flags, d *daemon.Daemon, log *slog.Logger, level *slog.LevelVar) {
	cfg, err := f.config()
	if err == nil {
		err = cfg.Normalize()
	}
	if err != nil {
		d.ReloadRefused(err)
		log.Error("the configuration was not reloaded", "error", err)
		return
	}
	setLevel(level, cfg.Log.Level)
	if err := d.Reload(cfg); err != nil {
		log.Warn("the configuration was reloaded in part", "error", err)
		return
	}
	log.Info("the configuration was reloaded")
}

func tell(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told", "error", err)
	}
}
