package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/pelletier/go-toml/v2"

	"multiedge/edge"
	"multiedge/internal/forward"
	"multiedge/internal/metrics"
)

type forwardCmd struct {
	Rule    []string `arg:"" optional:"" help:"LISTEN PEER SERVICE: the address where programs connect, and the service to dial. With --serve SERVICE TARGET: the service to offer, and the server's address. Addresses are HOST:PORT or /PATH."`
	Serve   bool     `help:"Offer a service and connect its streams to a server on this host."`
	Config  string   `short:"c" placeholder:"FILE" predictor:"file" help:"Take the rules from the [[forward]] tables of edged's configuration."`
	Conns   int      `placeholder:"N" help:"Connections at once, for the rule given here; further ones wait (default: 256)."`
	Metrics string   `placeholder:"ADDRESS" help:"Address that serves /metrics."`
}

// Help is what edgectl forward --help says beside the options.
func (*forwardCmd) Help() string {
	return `Carries TCP and Unix connections to another host and back, for programs that use only sockets. On the host of the server, and then on that of the
programs:

	edgectl forward --serve redis 127.0.0.1:6379
	edgectl forward 127.0.0.1:6379 other-host redis

A connection that breaks on one side is reset on the other. The forwarder runs until it is interrupted; edge-forward.service runs it with the configuration's rules.`
}

// rules puts together what the command line and the configuration say.
func (c *forwardCmd) rules() ([]forward.Rule, error) {
	var file struct {
		Forward []forward.Rule `toml:"forward"`
	}
	if c.Config != "" {
		text, err := os.ReadFile(c.Config)
		if err != nil {
			return nil, fmt.Errorf("forward: %w", err)
		}
		err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&file)
		others, ok := errors.AsType[*toml.StrictMissingError](err)
		if err != nil && !ok {
			return nil, fmt.Errorf("forward: %s: %w", c.Config, err)
		}
		for i := 0; ok && i < len(others.Errors); i++ {
			if key := others.Errors[i].Key(); key[0] == "forward" {
				return nil,
					fmt.Errorf("forward: %s: unknown key %q; a rule has listen, peer, service, target and conns",
						c.Config, strings.Join(key, "."))
			}
		}
		if len(c.Rule) == 0 && len(file.Forward) == 0 {
			return nil,
				fmt.Errorf("forward: %s has no [[forward]]; add one with listen, peer and service, or with service "+
					"and target", c.Config)
		}
	}
	switch {
	case len(c.Rule) == 2 && c.Serve:
		file.Forward = append(file.Forward, forward.Rule{Service: c.Rule[0], Target: c.Rule[1], Conns: c.Conns})
	case len(c.Rule) == 3 && !c.Serve:
		file.Forward = append(file.Forward, forward.Rule{Listen: c.Rule[0], Peer: c.Rule[1], Service: c.Rule[2],
			Conns: c.Conns})
	case len(c.Rule) > 0 || c.Config == "":
		return nil, errors.New("forward: say LISTEN PEER SERVICE, or --serve SERVICE TARGET, or --config FILE")
	}
	return file.Forward, nil
}

// Run carries connections until it is interrupted.
func (c *forwardCmd) Run(g *globals) error {
	rules, err := c.rules()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(g.errs, nil))
	begin, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	dev, err := edge.Open(begin, edge.Config{Socket: g.Socket, Log: log})
	if err != nil {
		return err
	}
	defer dev.Close()
	f, err := forward.New(dev, rules, log)
	if err != nil {
		return err
	}
	if c.Metrics != "" {
		srv := &http.Server{Addr: c.Metrics, Handler: metrics.Forward(f), ReadHeaderTimeout: 5 * time.Second}
		defer srv.Close()
		go func() {
			if err := srv.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				log.Error("forward: no metrics", "reason", err)
			}
		}()
	}
	return f.Run(ctx, func() {
		for i := range rules {
			log.Info("forward: ready", "rule", rules[i].String())
		}
		systemd.SdNotify(false, systemd.SdNotifyReady)
	})
}
