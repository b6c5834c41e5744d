package edge

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"multiedge/internal/secure"
)

// Two processes with embedded transports reach each other over UDP ports, of which one knows the other's.
func TestEmbeddedOverIP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	keys := []secure.PrivateKey{secure.NewPrivateKey(), secure.NewPrivateKey()}
	var ports []string
	for range keys {
		probe, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, probe.LocalAddr().String())
		probe.Close()
	}
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
