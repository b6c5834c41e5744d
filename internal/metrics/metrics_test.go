package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/engine/count"
	"multiedge/internal/inspect"
)

// fixed is a Source with settled answers.
type fixed struct {
	snap  inspect.Snapshot
	err   error
	alive bool
	ready error
}

func (f *fixed) Snapshot() (*inspect.Snapshot, error) { return &f.snap, f.err }
func (f *fixed) Alive(time.Duration) bool             { return f.alive }
func (f *fixed) Readiness() error                     { return f.ready }
func (f *fixed) Node() (string, string)               { return "alpha", "0011" }

func sample() *fixed {
	return &fixed{alive: true, snap: inspect.Snapshot{
		Status: inspect.Status{
			Totals:     inspect.Totals{LinksUp: 1, Clients: 2},
			Protection: inspect.Protection{Security: config.Plaintext},
		},
		Counters: engine.Counters{
			Traffic: count.Traffic{PayloadReceived: 12345},
			Loss:    count.Loss{FramesReordered: 7},
			Trust:   count.Trust{IdentityClaims: 8},
		},
		Links: []inspect.LinkStatus{{Name: "eth1", Up: true, MTU: 9000, Kernel: inspect.Counts{"dropped": 3},
			Counters: inspect.Counts{"bytes_received": 99, "frames_reordered": 4}}},
		Peers: []inspect.PeerStatus{
			{Name: "beta", State: "open", Received: 77, Sessions: 3,
				Paths: []inspect.PathStatus{{Link: "eth1", State: "good", SRTT: 5000, InFlight: 6},
					{Link: "eth1", State: "dead"}}},
			{Name: "beta", State: "known"},            // a second node of that name must not make the scrape fail
			{Name: "\xff", Node: "2", State: "known"}, // nor must what some node calls itself in plaintext
			{Name: "?", Node: "3", State: "known"},
		},
	}}
}

// What promtool check metrics complains of must not be there.
func TestLint(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector(sample(), "1"))
	problems, err := testutil.GatherAndLint(reg)
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	body, _ := io.ReadAll(w.Body)
	return w.Code, string(body)
}

func TestEndpoints(t *testing.T) {
	src := sample()
	src.ready = errors.New("starting")
	h := Handler(src, "1")
	if code, body := get(t, h, "/readyz"); code != 503 || !strings.Contains(body, "starting") {
		t.Errorf("readyz while starting: %d %s", code, body)
	}
	src.ready = nil
	for _, path := range []string{"/readyz", "/livez"} {
		if code, body := get(t, h, path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	code, body := get(t, h, "/")
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		if code != 200 || !strings.Contains(body, `href="`+path+`"`) {
			t.Errorf("the page, %d, does not name %s: %s", code, path, body)
		}
	}
	if code, _ := get(t, h, "/elsewhere"); code != 404 {
		t.Errorf("a path that is not there: %d", code)
	}
	_, body = get(t, h, "/metrics")
	for _, line := range []string{
		`edge_data_received_bytes_total{device="alpha"} 12345`,
		`edge_out_of_sequence_packets_received_total{device="alpha"} 7`,
		`edge_link_receive_dropped_total{device="alpha",link="eth1"} 3`,
		`edge_path_round_trip_seconds{device="alpha",link="eth1",peer="beta"} 5e-06`,
		`edge_link_frame_received_bytes_total{device="alpha",link="eth1"} 99`,
		`edge_link_out_of_sequence_packets_received_total{device="alpha",link="eth1"} 4`,
		`edge_path_packets_in_flight{device="alpha",link="eth1",peer="beta"} 6`, `edge_draining{device="alpha"} 0`,
		`edge_peer_up{device="alpha",peer="?"} 0`, `edge_up{device="alpha"} 1`, `edge_clients{device="alpha"} 2`,
		`edge_plaintext{device="alpha"} 1`,
		`edge_identity_claims_total{device="alpha"} 8`, `edge_config_last_reload_successful{device="alpha"} 1`,
		`edge_peer_received_bytes_total{device="alpha",peer="beta"} 77`,
		`edge_peer_sessions_opened_total{device="alpha",peer="beta"} 3`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	src.snap.Status.Reload = &inspect.ReloadStatus{Result: inspect.ReloadFailed}
	if _, body := get(t, h, "/metrics"); !strings.Contains(body,
		`edge_config_last_reload_successful{device="alpha"} 0`) {
		t.Error("metrics do not tell of a reload that failed")
	}
	src.alive, src.err = false, errors.New("stopping")
	if code, _ := get(t, h, "/livez"); code != 503 {
		t.Errorf("livez of a stuck daemon: %d", code)
	}
	if _, body := get(t, h, "/metrics"); !strings.Contains(body, `edge_up{device="alpha"} 0`) {
		t.Error("a scrape of a stopping daemon does not say so")
	}
	if code, _ := get(t, h, "/other"); code != 404 {
		t.Errorf("other path: %d", code)
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	addr, err := Serve(ctx, config.Metrics{Listen: "127.0.0.1:0"}, Handler(sample(), "1"), log,
		func(err error) { t.Error(err) })
	must(t, err)
	resp, err := http.Get("http://" + addr.String() + "/livez")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if _, err := Serve(ctx, config.Metrics{Listen: addr.String()}, nil, log, nil); err == nil ||
		!strings.Contains(err.Error(), "--metrics-listen") {
		t.Fatalf("address in use: %v", err)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
