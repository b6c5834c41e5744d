package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
)

// Names of peers' endpoints are looked up, again while there is no session; what cannot be looked up stays as it was;
// peers that are authorised no more are forgotten.
func TestEndpointsAreLookedUp(t *testing.T) {
	key, placed, other := secure.NewPrivateKey(), secure.NewPrivateKey().Public(), secure.NewPrivateKey().Public()
	cfg := config.Config{Name: "a", Links: []config.Link{{Name: "x0"}}, Peers: []config.Peer{
		{Name: "placed", Key: placed.String(),
			Endpoints: []string{"beta.example:9470", "10.0.0.2:1", "[2001:db8::2]:2"}},
		{Name: "literal", Key: other.String(), Endpoints: []string{"10.0.0.3:3"}},
		{Name: "heard", Key: secure.NewPrivateKey().Public().String()}}}
	d, err := prepare(cfg, Options{Key: &key, inline: true, Log: logTo(t)})
	must(t, err)
	defer d.Close()
	e := &d.trust.endpoints
	answer, asked := []string{"192.0.2.9", "192.0.2.1"}, 0
	e.lookup = func(_ context.Context, network, host string) (found []netip.Addr, err error) {
		if asked++; network != "ip" || host != "beta.example" {
			t.Errorf("asked for %s %s", network, host)
		}
		if len(answer) == 0 {
			return nil, errors.New("no such host")
		}
		for _, ip := range answer {
			found = append(found, netip.MustParseAddr(ip))
		}
		return found, nil
	}
	shows := func(key secure.PublicKey, want string) {
		t.Helper()
		var got []string
		for _, at := range e.shown[engine.NodeID(key.Node())] {
			got = append(got, at.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("shown are %v, want %s", got, want)
		}
	}
	d.findEndpoints(t.Context(), true)
	shows(placed, "192.0.2.1:9470 192.0.2.9:9470 10.0.0.2:1 [2001:db8::2]:2")
	shows(other, "10.0.0.3:3")
	if len(e.shown) != 2 || asked != 1 {
		t.Errorf("%d peers, %d questions", len(e.shown), asked)
	}
	answer = []string{"192.0.2.7"}
	d.findEndpoints(t.Context(), false) // there is no session
	shows(placed, "192.0.2.7:9470 10.0.0.2:1 [2001:db8::2]:2")
	answer = nil
	must(t, d.SetPeers([]config.Peer{{Name: "placed", Key: placed.String(), Endpoints: []string{"beta.example:9470"}}}))
	d.findEndpoints(t.Context(), true) // asks nobody any more: it has to begin again
	shows(other, "")
	if asked != 2 {
		t.Errorf("%d questions", asked)
	}
	select {
	case <-e.kicks:
	default:
		t.Error("other peers do not have their addresses found")
	}
	d.findEndpoints(t.Context(), true)
	shows(placed, "192.0.2.7:9470") // as it was, as far as is known
	shows(other, "")
	if len(e.shown) != 1 {
		t.Errorf("%d peers", len(e.shown))
	}
	// beside an address, a name that cannot be looked up now keeps what it had
	must(t, d.SetPeers([]config.Peer{{Name: "placed", Key: placed.String(),
		Endpoints: []string{"10.0.0.9:9", "beta.example:9470", "10.0.0.10:10"}}}))
	<-e.kicks
	d.findEndpoints(t.Context(), true)
	shows(placed, "10.0.0.9:9 192.0.2.7:9470 10.0.0.10:10")
}

// A name server that does not answer for one peer keeps no other waiting; so many are looked up at once, not more.
func TestLookupsRunBesideEachOther(t *testing.T) {
	key := secure.NewPrivateKey()
	cfg := config.Config{Name: "a", Links: []config.Link{{Name: "x0"}}}
	const peers = 3 * mostLookups
	for i := range peers {
		cfg.Peers = append(cfg.Peers, config.Peer{Name: fmt.Sprint("p", i),
			Key:       secure.NewPrivateKey().Public().String(),
			Endpoints: []string{fmt.Sprintf("p%d.example:9470", i)}})
	}
	d, err := prepare(cfg, Options{Key: &key, inline: true, Log: logTo(t)})
	must(t, err)
	defer d.Close()
	e := &d.trust.endpoints
	var mu sync.Mutex
	running, most, asked, full := 0, 0, 0, make(chan struct{})
	e.lookup = func(ctx context.Context, _, host string) ([]netip.Addr, error) {
		mu.Lock()
		running, asked = running+1, asked+1
		most = max(most, running)
		last := asked == mostLookups
		mu.Unlock()
		if last {
			for range 1000 { // further ones would begin, if they might
				runtime.Gosched()
			}
			close(full)
		}
		defer func() {
			mu.Lock()
			running--
			mu.Unlock()
		}()
		select {
		case <-full: // as many as may be are waiting
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.findEndpoints(t.Context(), true)
	if len(e.shown) != peers || asked != peers || most != mostLookups || len(e.failed) > 0 {
		t.Errorf("%d of %d peers are found after %d questions, %d at once; %d failed", len(e.shown), peers, asked, most,
			len(e.failed))
	}
}

// Peers that change while the daemon runs are found without a name among their endpoints, too.
func TestEndpointsAreFollowed(t *testing.T) {
	key, named, other := secure.NewPrivateKey(), secure.NewPrivateKey().Public(), secure.NewPrivateKey().Public()
	d, err := prepare(config.Config{Name: "a", Links: []config.Link{{Name: "x0"}}, Peers: []config.Peer{
		{Name: "named", Key: named.String(), Endpoints: []string{"beta.example:9470"}}}},
		Options{Key: &key, inline: true, Log: logTo(t)})
	must(t, err)
	defer d.Close()
	e := &d.trust.endpoints
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	lookups := make(chan string, 10)
	e.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		lookups <- host
		return nil, errors.New("no such host")
	}
	go func() { d.followEndpoints(ctx); close(done) }()
	must(t, d.SetPeers([]config.Peer{
		{Name: "literal", Key: other.String(), Endpoints: []string{"10.0.0.4:4"}},
		{Name: "named", Key: named.String(), Endpoints: []string{"gamma.example:9470"}}}))
	for <-lookups != "gamma.example" { // names come last: the address is shown by then
	}
	cancel()
	<-done
	if at := e.shown[engine.NodeID(other.Node())]; len(at) != 1 || at[0].String() != "10.0.0.4:4" {
		t.Errorf("shown are %v", at)
	}
}

// Two nodes with IP links alone, on loopback: one knows where the other is. No privilege is asked for, and what people
// are told is of UDP ports.
func TestNodesOverIP(t *testing.T) {
	keys := []secure.PrivateKey{secure.NewPrivateKey(), secure.NewPrivateKey()}
	ports := make([]string, 2)
	for i := range ports {
		probe, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		ports[i] = probe.LocalAddr().String()
		probe.Close()
	}
	var nodes []*Embedded
	for i, name := range []string{"a", "b"} {
		peer := config.Peer{Name: []string{"b", "a"}[i], Key: keys[1-i].Public().String()}
		if i == 1 {
			peer.Endpoints = []string{ports[0]}
		}
		e, err := NewEmbedded(config.Config{Name: name, Links: []config.Link{{Listen: ports[i]}}, Poll: "block",
			Peers: []config.Peer{peer}}, Options{Key: &keys[i], Log: logTo(t)})
		must(t, err)
		t.Cleanup(func() { e.Close() })
		nodes = append(nodes, e)
	}
	server, client := attach(t, nodes[0], 64), attach(t, nodes[1], 64)
	connect(t, server, client, "a", "mem")
	snap, err := nodes[1].d.Snapshot()
	must(t, err)
	l := snap.Links[0]
	if !l.Up || l.Driver != linkdrv.KindIP || l.Listen != ports[1] || l.MAC != ports[1] || l.Missing || l.Device != "" {
		t.Errorf("link %+v", l)
	}
	if p := snap.Peers[0]; p.State != "open" || len(p.Paths) != 1 || p.Paths[0].PeerMAC != ports[0] {
		t.Errorf("peer %+v", p)
	}
	about := map[string]string{}
	for _, f := range nodes[1].d.shown.inspector.Facts(snap) {
		about[f.About] += fmt.Sprint(f.Severity, " ", f.Text, "; ")
	}
	text := about["link "+ports[1]]
	if _, asked := about["CAP_NET_RAW"]; asked || !strings.Contains(text, "holds") ||
		strings.Contains(text, inspect.FindingProblem) {
		t.Errorf("doctor: %v", about)
	}
	r := client.must(&ipc.Message{Kind: ipc.KindStatus, What: "authorised"})
	if !slices.Contains(strings.FieldsFunc(string(r.Body), func(c rune) bool { return c == '"' }), ports[0]) {
		t.Errorf("authorised peers: %s", r.Body)
	}
	changed := nodes[1].d.Config()
	changed.Links = []config.Link{{Listen: ports[1], Weight: 2}}
	must(t, nodes[1].d.Reload(changed)) // the link is opened anew, at the port that it had
	dialAccept(t, server, client, "a", "mem")
	if snap, err = nodes[1].d.Snapshot(); err != nil || snap.Links[0].Opens != 2 || snap.Links[0].Weight != 2 {
		t.Errorf("after a reload: %+v, %v", snap.Links, err)
	}
}

// A change of peers does not wait for lookups that a name server keeps waiting.
func TestEndpointsDoNotWaitForLookups(t *testing.T) {
	key, named, other := secure.NewPrivateKey(), secure.NewPrivateKey().Public(), secure.NewPrivateKey().Public()
	d, err := prepare(config.Config{Name: "a", Links: []config.Link{{Name: "x0"}}, Peers: []config.Peer{
		{Name: "named", Key: named.String(), Endpoints: []string{"beta.example:9470"}}}},
		Options{Key: &key, inline: true, Log: logTo(t)})
	must(t, err)
	defer d.Close()
	e := &d.trust.endpoints
	looked, answer, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	e.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		close(looked)
		<-answer
		close(gone)
		return nil, errors.New("no such host")
	}
	found := make(chan struct{})
	go func() { d.findEndpoints(t.Context(), true); close(found) }()
	<-looked
	must(t, d.SetPeers([]config.Peer{{Name: "literal", Key: other.String(), Endpoints: []string{"10.0.0.4:4"}}}))
	select {
	case <-found: // although nothing was answered
	case <-time.After(10 * time.Second):
		t.Error("the change waits for the lookup")
	}
	if len(e.kicks) != 1 {
		t.Error("the change is forgotten")
	}
	close(answer)
	<-gone
	<-found
}

// Addresses outside the networks of a peer are not shown, whatever a name server says.
func TestEndpointsOutsideAreNotShown(t *testing.T) {
	key, peer := secure.NewPrivateKey(), secure.NewPrivateKey().Public()
	d, err := prepare(config.Config{Name: "a", Links: []config.Link{{Name: "x0"}}, Peers: []config.Peer{{Name: "named",
		Key: peer.String(), Endpoints: []string{"beta.example:9470", "10.0.0.2:1"}, Allow: []string{"10.0.0.0/8"}}}},
		Options{Key: &key, inline: true, Log: logTo(t)})
	must(t, err)
	defer d.Close()
	d.trust.endpoints.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.9")}, nil
	}
	d.findEndpoints(t.Context(), true)
	at := d.trust.endpoints.shown[engine.NodeID(peer.Node())]
	if len(at) != 2 || at[0].String() != "10.0.0.9:9470" || at[1].String() != "10.0.0.2:1" {
		t.Errorf("shown are %v", at)
	}
}
