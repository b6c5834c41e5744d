package shard

import (
	"strings"
	"testing"

	"multiedge/internal/engine"
)

// A ping that nobody answers tells of the paths, not of the service that it asks for.
func TestUnansweredPing(t *testing.T) {
	p, s := &Ping{Done: make(chan Pong, 1)}, &Shard{}
	s.pinged(0, p, &engine.Event{Kind: engine.EvClosed, Status: engine.StatusTimeout, Text: "service " + pingService})
	if r := <-p.Done; r.Status != "timeout" || strings.Contains(r.Text, "ping") || !strings.Contains(r.Text,
		"edgectl peer") {
		t.Errorf("%+v", r)
	}
}
