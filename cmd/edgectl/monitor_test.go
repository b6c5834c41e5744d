package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
)

// What happens is a line, for people or as JSON, when it happens; an interrupt ends well, the daemon's end does not.
func TestMonitor(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		a, _ := pair(t, config.Encrypted)
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		g := &globals{Socket: a, Timeout: 10 * time.Second, JSON: asJSON, out: w}
		done := make(chan error, 1)
		go func() { done <- g.monitor(ctx); w.Close() }()
		stop := make(chan struct{})
		go func() { // until the monitor has joined, what happens is not told to it
			for {
				select {
				case <-stop:
					return
				default:
					ctl("-s", a, "drain")
					ctl("-s", a, "drain", "--undo")
				}
			}
		}()
		lines := bufio.NewScanner(r)
		for seen := 0; seen < 2 && lines.Scan(); seen++ {
			line := lines.Text()
			if asJSON != json.Valid([]byte(line)) || !strings.Contains(line, "drain") || !strings.Contains(line,
				"process ") && !strings.Contains(line, `"pid":`) {
				t.Errorf("-j %v: %s", asJSON, line)
			}
		}
		close(stop)
		cancel()
		go io.Copy(io.Discard, r)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	g := &globals{Socket: t.TempDir() + "/none", Timeout: time.Second, out: io.Discard}
	if err := g.monitor(t.Context()); err == nil || !strings.Contains(err.Error(), "no daemon runs") {
		t.Errorf("without a daemon: %v", err)
	}
}
