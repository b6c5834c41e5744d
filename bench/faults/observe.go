package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"multiedge/bench/kit"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// metricsAddress is where every daemon of a scene serves /metrics, inside its own host.
const metricsAddress = "127.0.0.1:9469"

// ask asks a host's daemon over its control socket, as edgectl does.
func ask[T any](s *Scene, host int, what string) (out T) {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	body := kit.Get(ipc.Ask(ctx, s.cluster.Socket(host), ipc.Message{Kind: ipc.KindStatus, What: what}))
	kit.Check(json.Unmarshal(body, &out))
	return out
}

// status returns the status of a host's daemon.
func (s *Scene) status(host int) inspect.Status { return ask[inspect.Status](s, host, "status") }

// security returns the security of host 0's daemon. A daemon that reports none speaks plaintext.
func (s *Scene) security() string {
	if word, ok := ask[map[string]any](s, 0, "status")["security"].(string); ok {
		return word
	}
	return "plaintext"
}

func (s *Scene) links(host int) []inspect.LinkStatus {
	return ask[[]inspect.LinkStatus](s, host, "link")
}

func (s *Scene) conns(host int) []inspect.ConnStatus {
	return ask[[]inspect.ConnStatus](s, host, "conn")
}

// path returns what a host's daemon reports of the path of a link to a peer, or nil if there is none.
func (s *Scene) path(host int, link, peer string) *inspect.PathStatus {
	peers := ask[[]inspect.PeerStatus](s, host, "peer")
	for i := range peers {
		for j := range peers[i].Paths {
			if p := &peers[i].Paths[j]; peers[i].Name == peer && p.Link == link {
				return p
			}
		}
	}
	return nil
}

// present is the path of host 0 over a link to host 1, which must be there.
func (s *Scene) present(link int) *inspect.PathStatus {
	p := s.path(0, fmt.Sprintf("edge%d", link), "host1")
	if p == nil {
		kit.Fail("there is no path over link %d", link)
	}
	return p
}

// allGood reports whether both hosts use both of two links to each other, and ok holds for each path.
func (s *Scene) allGood(ok func(link int, p *inspect.PathStatus) bool) bool {
	for h := range 2 {
		for link := range 2 {
			p := s.path(h, fmt.Sprintf("edge%d", link), s.cluster.Lab().Host(1-h).Name())
			if p == nil || p.State != "good" || !ok(link, p) {
				return false
			}
		}
	}
	return true
}

// scrape reads a host's /metrics: the sum of each counter or gauge over its labels, by name.
func (s *Scene) scrape(host int) map[string]float64 {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	h := s.cluster.Lab().Host(host)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
			err = h.Do(func() (err error) {
				c, err = net.DialTimeout(network, addr, time.Second)
				return err
			})
			return c, err
		}}}
	req := kit.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil))
	resp := kit.Get(client.Do(req))
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		kit.Fail("/metrics: %s", resp.Status)
	}
	text := expfmt.NewTextParser(model.UTF8Validation)
	out := map[string]float64{}
	for name, family := range kit.Get(text.TextToMetricFamilies(resp.Body)) {
		for _, m := range family.Metric {
			out[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return out
}
