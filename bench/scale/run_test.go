package scale

import (
	"context"
	"strings"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

// A small run through daemons in lab hosts: every connection carries its operation, memory is attributed, and nothing
// is left behind.
func TestScale(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	spec := Spec{Conns: 300, Cycles: 400, Workers: 8}
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1}, Limits: spec.Limits()})
	shown := 0
	res, err := InLab.Run(ctx, c, spec, func(string, float64) { shown++ })
	kittest.Must(t, err)
	var tables, lines strings.Builder
	s := res.Study(report.Head{})
	for i := range s.Tables {
		kittest.Must(t, s.Tables[i].Text(&tables))
	}
	kittest.Must(t, s.CSV(&lines))
	if got := lines.String(); !strings.Contains(got, `held,open again,"server's daemon, MiB: connections",301,,`) ||
		!strings.Contains(got, "connection,at rest again,server,") {
		t.Errorf("no numbers of connections in\n%s", got)
	}
	t.Log(tables.String())
	if len(res.Leaks) != 0 {
		t.Errorf("left behind: %v", res.Leaks)
	}
	// the race detector's shadow of what was once allocated stays resident when the objects and their pages are gone
	if len(res.Grown) != 0 && !raceDetector {
		t.Errorf("left in memory: %v", res.Grown)
	}
	if len(res.First) != spec.Conns || len(res.Second) != spec.Conns {
		t.Errorf("%d and %d writes after a rest", len(res.First), len(res.Second))
	}
	if len(res.Moments) != 9 || res.CyclesPerSec <= 0 || shown == 0 {
		t.Errorf("%+v", res)
	}
	for _, m := range res.Moments {
		want := 1
		switch m.What {
		case "open", "open again", "used", "rested", "back":
			want += spec.Conns
		}
		for _, h := range []Host{m.Client, m.Server} {
			if h.Daemon.Connections != want || h.Daemon.Resident == 0 || h.Daemon.Heap == 0 ||
				h.Daemon.Goroutines == 0 || h.Application.Resident == 0 {
				t.Errorf("%s: %+v", m.What, h)
			}
		}
	}
}
