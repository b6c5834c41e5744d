package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"multiedge/internal/forward"
)

// Forward serves what a forwarder does, by rule: /metrics of edgectl forward.
func Forward(f *forward.Forwarder) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(&forwardCollector{f})
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

type forwardCollector struct{ f *forward.Forwarder }

var (
	forwardLabels = []string{"service", "direction"}
	forwardOpen   = prometheus.NewDesc("edge_forward_connections", "Connections that are carried now.", forwardLabels,
		nil)
	forwardOpened = prometheus.NewDesc("edge_forward_connections_total", "Connections that were carried.",
		forwardLabels, nil)
	forwardFailed = prometheus.NewDesc("edge_forward_failures_total",
		"Connections whose other side could not be reached.", forwardLabels, nil)
	forwardBroken = prometheus.NewDesc("edge_forward_resets_total", "Connections that ended by an error.",
		forwardLabels, nil)
	forwardOutByte = prometheus.NewDesc("edge_forward_transmitted_bytes_total", "Bytes carried to the peer.",
		forwardLabels, nil)
	forwardInByte = prometheus.NewDesc("edge_forward_received_bytes_total", "Bytes carried from the peer.",
		forwardLabels, nil)
)

// Describe implements prometheus.Collector.
func (c *forwardCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. Rules of one service and direction are summed.
func (c *forwardCollector) Collect(ch chan<- prometheus.Metric) {
	type key struct{ service, direction string }
	type sums struct{ open, opened, failed, broken, out, in float64 }
	by := map[key]*sums{}
	c.f.Each(func(r *forward.Rule, n *forward.Counters) {
		k := key{r.Service, "inward"}
		if r.Listen != "" {
			k.direction = "outward"
		}
		s := by[k]
		if s == nil {
			s = new(sums)
			by[k] = s
		}
		s.open += float64(n.Open.Load())
		s.opened += float64(n.Opened.Load())
		s.failed += float64(n.Failed.Load())
		s.broken += float64(n.Broken.Load())
		s.out += float64(n.Out.Load())
		s.in += float64(n.In.Load())
	})
	for k, s := range by {
		ch <- prometheus.MustNewConstMetric(forwardOpen, prometheus.GaugeValue, s.open, k.service, k.direction)
		for _, m := range []struct {
			desc *prometheus.Desc
			v    float64
		}{{forwardOpened, s.opened}, {forwardFailed, s.failed}, {forwardBroken, s.broken}, {forwardOutByte, s.out},
			{forwardInByte, s.in}} {
			ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, m.v, k.service, k.direction)
		}
	}
}
