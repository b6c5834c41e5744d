package dsmprom

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"multiedge/edge/dsm"
	"multiedge/edge/fabric"
)

// values gathers what a collector exports, by name.
func values(t *testing.T, c *Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		m := f.Metric[0]
		if f.GetType() != dto.MetricType_COUNTER || len(f.Metric) != 1 || f.GetHelp() == "" ||
			m.Label[0].GetValue() != "3" || m.Label[1].GetValue() != "job" {
			t.Errorf("%v", f)
		}
		got[f.GetName()] = m.Counter.GetValue()
	}
	return got
}

// Every number of Stats is exported, once, and times are seconds.
func TestEveryNumberIsExported(t *testing.T) {
	c := New("job", 3)
	var s dsm.Stats
	v, want := reflect.ValueOf(&s).Elem(), map[float64]string{}
	for i := range v.NumField() {
		n := float64(i + 1)
		if f := v.Type().Field(i); f.Type.Name() == "Duration" {
			v.Field(i).SetInt(int64(i+1) * 1e9)
		} else {
			v.Field(i).SetInt(int64(i + 1))
		}
		want[n] = v.Type().Field(i).Name
	}
	c.Observe(s)
	got := values(t, c)
	for name, x := range got {
		if want[x] == "" {
			t.Errorf("%s is %v, which is no number of Stats, or one twice", name, x)
		}
		delete(want, x)
	}
	if len(want) > 0 {
		t.Errorf("not exported: %v", want)
	}
	if got["edge_dsm_fetches_total"] != 2 || got["edge_dsm_barrier_seconds_total"] != float64(v.NumField()) {
		t.Errorf("%v", got)
	}
}

// A server that is scraped while a program runs shows what its ranks had done at their latest barriers. Here two ranks
// are goroutines on hosts in memory; a process that has EDGE_DSM in its environment registers a collector of its own.
func ExampleCollector() {
	fab := fabric.New()
	defer fab.Close()
	registry := prometheus.NewRegistry()
	var wg sync.WaitGroup
	for rank := range 2 {
		collector := New("sum", rank)
		registry.MustRegister(collector)
		d, err := fab.Open(fmt.Sprintf("host%d", rank))
		if err != nil {
			log.Fatal(err)
		}
		c := dsm.Config{Name: "sum", Rank: rank, Ranks: 2, Root: "host0", Device: d, Size: 1 << 20,
			Observe: collector.Observe}
		wg.Go(func() {
			err := dsm.Run(context.Background(), c, func(m *dsm.Memory) error {
				a := dsm.Alloc[int](m, 1, dsm.At(0))
				for range 5 {
					m.Lock(0)
					a.Set(0, a.At(0)+1)
					m.Unlock(0)
				}
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	page, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "edge_dsm_locks_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// edge_dsm_locks_total{rank="0",run="sum"} 5
	// edge_dsm_locks_total{rank="1",run="sum"} 5
}
