package scale

import (
	"slices"
	"strings"
	"testing"
)

// A run is judged by what it left: here everything that can be left is, once.
func TestJudge(t *testing.T) {
	host := func(resident uint64, conns int) Host {
		return Host{Application: Usage{Resident: resident}, Daemon: Usage{Resident: resident, Connections: conns,
			Goroutines: 10, Descriptors: 20, Pinned: 4096}}
	}
	good := func() *Result {
		r := &Result{Spec: Spec{Conns: 100}}
		for _, what := range []string{"warm", "open", "used", "rested", "closed", "cycled", "open again",
			"closed again"} {
			h := host(1<<20, 1)
			if strings.HasPrefix(what, "open") || what == "used" || what == "rested" {
				h = host(3<<20, 101)
			}
			r.Moments = append(r.Moments, Moment{What: what, Client: h, Server: h})
		}
		return r
	}
	r := good()
	if r.judge(); len(r.Left()) != 0 {
		t.Fatalf("nothing is left: %v", r.Left())
	}
	want := float64(2<<20) / 100
	if each := (PerConn{want, want, want, want}); r.PerConnection != each || r.Used != each || r.Rested != each {
		t.Errorf("%+v, want %v", r, want)
	}
	for what, spoil := range map[string]func(*Moment){
		"12 connections": func(m *Moment) { m.Client.Daemon.Connections += 11 },
		"goroutines":     func(m *Moment) { m.Server.Daemon.Goroutines += 5 },
		"descriptors":    func(m *Moment) { m.Server.Application.Descriptors += 5 },
		"regions":        func(m *Moment) { m.Client.Daemon.Regions++ },
		"exports":        func(m *Moment) { m.Server.Daemon.Exports++ },
		"pinned bytes":   func(m *Moment) { m.Client.Daemon.Pinned += 4096 },
		"MiB of objects": func(m *Moment) { m.Server.Daemon.Heap = 5 << 20 },
		"MiB in memory":  func(m *Moment) { m.Server.Daemon.Resident = 4 << 20 },
	} {
		r := good()
		spoil(&r.Moments[len(r.Moments)-1])
		if r.judge(); len(r.Left()) != 1 || !slices.ContainsFunc(r.Left(),
			func(s string) bool { return strings.Contains(s, what) && strings.Contains(s, "closed again") }) {
			t.Errorf("%s: %q", what, r.Left())
		}
	}
}
