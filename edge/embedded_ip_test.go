package edge

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/internal/inspect"
	"multiedge/internal/secure"
)

// udpPorts are free UDP ports of this host.
func udpPorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		probe, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer probe.Close()
		ports = append(ports, probe.LocalAddr().String())
	}
	return ports
}

// Two processes with embedded transports reach each other over UDP ports, of which one knows the other's.
func TestEmbeddedOverIP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	keys := []secure.PrivateKey{secure.NewPrivateKey(), secure.NewPrivateKey()}
	ports := udpPorts(t, len(keys))
	var ends []*Device
	for i, name := range []string{"a", "b"} {
		peer := []string{"b", "a"}[i]
		e := &Embedded{Name: name, Listen: []string{ports[i]}, Key: keys[i].Text(), Poll: "block",
			Peers: map[string]string{peer: keys[1-i].Public().String()}}
		if i == 1 {
			e.Endpoints = map[string][]string{peer: {ports[0]}}
		}
		d, err := Open(ctx, Config{Embedded: e})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		ends = append(ends, d)
	}
	l, err := ends[0].Listen(ctx, "mem")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			c.Close()
		}
		accepted <- err
	}()
	c, err := ends[1].Dial(ctx, "a", "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	_, err = Open(ctx, Config{Embedded: &Embedded{Listen: ports[:1], Endpoints: map[string][]string{"nobody": ports}}})
	if err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an endpoint of a peer that is not authorised: %v", err)
	}
}

// Lanes, congestion control and marks of an embedded transport's IP links are those that it asks for.
func TestEmbeddedIPSettings(t *testing.T) {
	ctx := testContext(t)
	keyA, keyB := secure.NewPrivateKey(), secure.NewPrivateKey()
	ports := udpPorts(t, 2)
	a := mustOpen(t, &Embedded{Name: "a", Listen: ports[:1], Key: keyA.Text(), Poll: "block", Lanes: 2,
		Peers: map[string]string{"b": keyB.Public().String()}})
	b := mustOpen(t, &Embedded{Name: "b", Listen: ports[1:], Key: keyB.Text(), Poll: "block", Lanes: 2,
		Congestion: "lossy", ECN: "off", Peers: map[string]string{"a": keyA.Public().String()},
		Endpoints: map[string][]string{"a": ports[:1]}})
	out, in := pairOn(t, ctx, b, a, "settings")
	must(t, exchange(ctx, out, in, 100_000, 1))
	for _, end := range []struct {
		d          *Device
		congestion string
		off        bool
	}{{a, "fabric", false}, {b, "lossy", true}} {
		body, err := end.d.status(ctx, "peer")
		must(t, err)
		var peers []inspect.PeerStatus
		must(t, json.Unmarshal(body, &peers))
		if len(peers) != 1 || len(peers[0].Paths) != 2 {
			t.Fatalf("%s: %s", end.d.Name(), body)
		}
		for _, p := range peers[0].Paths {
			// On a busy machine the default, auto, may take the way for one over a long line.
			auto := end.congestion == "fabric" && p.Congestion == "wan"
			if p.Congestion != end.congestion && !auto || (p.Marks == "off") != end.off {
				t.Errorf("%s: congestion %s, want %s; marks %s", end.d.Name(), p.Congestion, end.congestion, p.Marks)
			}
		}
	}
	for _, e := range []Embedded{{Links: []string{"lo"}, Lanes: 2}, {Listen: ports, Congestion: "none"},
		{Listen: ports, Lanes: 17}, {Listen: ports, ECN: "on"}} {
		if d, err := Open(ctx, Config{Embedded: &e}); err == nil {
			t.Errorf("%+v is no error", e)
			d.Close()
		}
	}
}

// A peer that is confined to networks gets no answer from elsewhere, and stays confined when it is authorised anew.
func TestEmbeddedAllow(t *testing.T) {
	ctx := testContext(t)
	keyA, keyB := secure.NewPrivateKey(), secure.NewPrivateKey()
	ports := udpPorts(t, 2)
	peersOfA := map[string]string{"b": keyB.Public().String()}
	b := mustOpen(t, &Embedded{Name: "b", Listen: ports[1:], Key: keyB.Text(), Poll: "block",
		Peers:     map[string]string{"a": keyA.Public().String()},
		Endpoints: map[string][]string{"a": ports[:1]}})
	dials := func(allow []string) bool {
		a := mustOpen(t, &Embedded{Name: "a", Listen: ports[:1], Key: keyA.Text(), Poll: "block", Peers: peersOfA,
			Allow: map[string][]string{"b": allow}})
		defer a.Close()
		must(t, a.authorise(peersOfA))
		l, err := a.Listen(ctx, "confined")
		must(t, err)
		defer l.Close()
		go func() {
			if c, err := l.Accept(ctx); err == nil {
				c.Close()
			}
		}()
		wait := 30 * time.Second
		if !slices.Contains(allow, "127.0.0.0/8") {
			wait = time.Second
		}
		brief, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		c, err := b.Dial(brief, "a", "confined")
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	if dials([]string{"10.0.0.0/8"}) {
		t.Error("a peer outside its networks has a connection")
	}
	if !dials([]string{"10.0.0.0/8", "127.0.0.0/8"}) {
		t.Error("a peer inside its networks has no connection")
	}
}

// mustOpen opens a device that is closed with the test.
func mustOpen(t *testing.T, e *Embedded) *Device {
	t.Helper()
	d, err := Open(testContext(t), Config{Embedded: e})
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}
