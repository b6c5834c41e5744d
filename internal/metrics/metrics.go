// Package metrics serves a daemon's counters to Prometheus and its health to supervisors. It is the only importer of the Prometheus client:
// counters and histograms are plain words of the engine, copied once per scrape through the shard's mailbox.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"multiedge/internal/daemon"
)

// Source is where the figures come from; *daemon.Daemon is one.
type Source interface {
	Snapshot() (*daemon.Snapshot, error)
	Alive(within time.Duration) bool
	Node() (name, id string)
}

// staleAfter is how long a shard may be silent before /livez fails.
const staleAfter = 5 * time.Second

// Handler serves /metrics, /livez and /readyz. ready says whether the daemon serves clients.
func Handler(src Source, version string, ready func() bool) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(src, version), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
		if err := readiness(src, ready); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func readiness(src Source, ready func() bool) error {
	if !ready() {
		return errors.New("starting")
	}
	snap, err := src.Snapshot()
	switch {
	case err != nil:
		return err
	case snap.Status.Draining:
		return errors.New("draining")
	case snap.Status.LinksUp == 0:
		return errors.New("no link is up")
	}
	return nil
}

// Serve serves h on a TCP address until ctx is done. The listener is opened before it returns, so that a bad address is an error at once.
func Serve(ctx context.Context, addr string, h http.Handler, failed func(error)) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics address: %w; choose another by --metrics-listen or set it empty", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
	return l.Addr(), nil
}
