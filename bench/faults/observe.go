package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// metricsAddress is where every daemon of a stage serves /metrics, inside its own host.
const metricsAddress = "127.0.0.1:9469"

// fetch asks a host's daemon over its control socket, as edgectl does.
func fetch[T any](ctx context.Context, socket, what string) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := ipc.Ask(ctx, socket, ipc.Message{Kind: ipc.KindStatus, What: what})
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	return out, err
}

// status returns the status of a host's daemon.
func (s *Stage) status(ctx context.Context, host int) (inspect.Status, error) {
	return fetch[inspect.Status](ctx, s.cluster.Socket(host), "status")
}

// security returns the security of host 0's daemon. A daemon that reports none speaks plaintext.
func (s *Stage) security(ctx context.Context) string {
	m, err := fetch[map[string]any](ctx, s.cluster.Socket(0), "status")
	if word, ok := m["security"].(string); err == nil && ok {
		return word
	}
	return "plaintext"
}

func (s *Stage) peers(ctx context.Context, host int) ([]inspect.PeerStatus, error) {
	return fetch[[]inspect.PeerStatus](ctx, s.cluster.Socket(host), "peer")
}

func (s *Stage) links(ctx context.Context, host int) ([]inspect.LinkStatus, error) {
	return fetch[[]inspect.LinkStatus](ctx, s.cluster.Socket(host), "link")
}

func (s *Stage) regions(ctx context.Context, host int) ([]inspect.RegionStatus, error) {
	return fetch[[]inspect.RegionStatus](ctx, s.cluster.Socket(host), "region")
}

// path returns what a host's daemon reports of the path of a link to a peer, or nil if there is none.
func (s *Stage) path(ctx context.Context, host int, link, peer string) (*inspect.PathStatus, error) {
	peers, err := s.peers(ctx, host)
	if err != nil {
		return nil, err
	}
	for i := range peers {
		for j := range peers[i].Paths {
			if p := &peers[i].Paths[j]; peers[i].Name == peer && p.Link == link {
				return p, nil
			}
		}
	}
	return nil, nil
}

// allGood reports whether both hosts use both of two links to each other, and ok holds for each path.
func (s *Stage) allGood(ctx context.Context, ok func(link int, p *inspect.PathStatus) bool) bool {
	for h := range 2 {
		for link := range 2 {
			p, err := s.path(ctx, h, fmt.Sprintf("edge%d", link), s.cluster.Lab().Host(1-h).Name())
			if err != nil || p == nil || p.State != "good" || !ok(link, p) {
				return false
			}
		}
	}
	return true
}

// scrape reads a host's /metrics: the sum of each metric over its labels, by name.
func (s *Stage) scrape(ctx context.Context, host int) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", resp.Status)
	}
	out := map[string]float64{}
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		name, value, ok := sample(sc.Text())
		if ok {
			out[name] += value
		}
	}
	return out, sc.Err()
}

// sample reads one line of the exposition format.
func sample(line string) (name string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", 0, false
	}
	at := strings.LastIndexByte(line, ' ')
	name, _, _ = strings.Cut(line[:max(at, 0)], "{")
	value, err := strconv.ParseFloat(line[at+1:], 64)
	return name, value, err == nil
}
