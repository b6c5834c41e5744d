// Package metrics serves a daemon's counters to Prometheus and its health to supervisors. It is the only importer of
// the Prometheus client: counters and histograms are plain words of the engine, copied once per scrape through the
// shard's mailbox.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
)

// Source is where the figures come from; *daemon.Daemon is one.
type Source interface {
	Snapshot() (*inspect.Snapshot, error)
	Alive(within time.Duration) bool
	Readiness() error // nil, or why nobody should be sent here; cheap
	Node() (name, id string)
}

// staleAfter is how long a shard may be silent before /livez fails.
const staleAfter = 5 * time.Second

// Handler serves /metrics, /livez, /readyz, and a page that names them.
func Handler(src Source, version string) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(src, version), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if !src.Alive(staleAfter) {
			http.Error(w, fmt.Sprintf("the shard has not gone round for %v", staleAfter), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := src.Readiness(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	page, err := web.NewLandingPage(web.LandingConfig{
		Name: "edged", Description: "RDMA over Ethernet without RDMA NICs", Version: version, Profiling: "false",
		Links: []web.LandingLinks{
			{Address: "metrics", Text: "Metrics"},
			{Address: "livez", Text: "Liveness", Description: "whether every shard goes round"},
			{Address: "readyz", Text: "Readiness", Description: "whether clients are served and a link is up"},
		},
	})
	if err != nil {
		panic("BUG: metrics: landing page: " + err.Error())
	}
	mux.Handle("GET /{$}", page)
	return mux
}

// Check reads the web configuration, if there is one, with the certificates it names.
func Check(cfg config.Metrics) error {
	if cfg.Listen == "" {
		return nil
	}
	if err := web.Validate(cfg.WebConfig); err != nil {
		return fmt.Errorf("metrics.web_config %s: %w; mend the file, or leave it and --metrics-web-config out for "+
			"plain HTTP", cfg.WebConfig, err)
	}
	return nil
}

// Serve serves h until ctx is done, over TLS and to the users that the web configuration names; without one, over plain
// HTTP to everybody. That file is checked and the listener opened before it returns, so that a bad one is an error at
// once. The file is read again for each request and connection.
func Serve(ctx context.Context, cfg config.Metrics, h http.Handler, log *slog.Logger, failed func(error)) (net.Addr,
	error) {
	if err := Check(cfg); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics address: %w; choose another by --metrics-listen or set it empty", err)
	}
	log = log.With("endpoint", "metrics")
	if cfg.WebConfig == "" && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		log.Warn("whoever reaches this address reads the metrics, in the clear: set metrics.web_config, or listen on "+
			"127.0.0.1", "address", l.Addr().String())
	}
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, ErrorLog: errorLog}
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	go func() {
		if err := web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &cfg.WebConfig}, log); !errors.Is(err,
			http.ErrServerClosed) {
			failed(err)
		}
	}()
	return l.Addr(), nil
}
