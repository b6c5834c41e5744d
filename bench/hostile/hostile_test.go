package hostile

import (
	"context"
	"fmt"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/edge"
	"multiedge/internal/ipc"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

// store exports memory to whoever comes, as Options.Peer asks for.
func store(t *testing.T, c *kit.Cluster) {
	t.Helper()
	d, err := edge.Open(t.Context(), edge.Config{Socket: c.Socket(1)})
	kittest.Must(t, err)
	t.Cleanup(func() { d.Close() })
	mem, err := d.Register(1 << 20)
	kittest.Must(t, err)
	l, err := d.Listen(t.Context(), "store")
	kittest.Must(t, err)
	go func() {
		for {
			conn, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			if _, err := mem.Export(conn, "memory", edge.RemoteRead|edge.RemoteWrite, 0, mem.Len()); err != nil {
				conn.Abort()
			}
		}
	}()
}

// Each mode misbehaves against a real daemon: one that breaks the rules is evicted for it, all others are borne, and
// the daemon serves the next client. That is how the scenarios know that a mode still does what it is named after.
func TestModes(t *testing.T) {
	c := kittest.Cluster(t, kit.ClusterSpec{Limits: "regions_per_user = 16"})
	store(t, c)
	dial := func(ctx context.Context) (*ipc.Conn, error) { return ipc.Dial(ctx, c.Socket(0)) }
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			o := Options{Mode: name, Seed: 1, For: 100 * time.Millisecond, Dial: dial}
			if WithPeer(name) {
				o.Peer, o.Service = c.Lab().Host(1).Name(), "store"
			}
			if Fatal(name) {
				o.For = 0 // until it is evicted
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			rep, err := Run(ctx, o)
			want := 0
			if Fatal(name) {
				want = 1
			}
			if err != nil || rep.Attached != 1 || rep.Acts == 0 || rep.Evictions != want ||
				rep.Expected != Fatal(name) || len(rep.Borne) > 0 || rep.Holes > 0 {
				t.Errorf("%+v, %v; want %d evictions", rep, err, want)
			}
			if name == "hoard" || name == "refill" {
				o.For = time.Second // on a busy machine the limit is further away than the first time
				for err == nil && rep.Refusals == 0 && ctx.Err() == nil {
					rep, err = Run(ctx, o)
				}
				if rep.Refusals == 0 {
					t.Error("it was never refused memory beyond the limit")
				}
			}
			d, err := edge.Open(t.Context(), edge.Config{Socket: c.Socket(0)})
			if err != nil {
				t.Fatalf("the daemon serves nobody any more: %v", err)
			}
			d.Close()
		})
	}
}

func TestUnknownModeIsExplained(t *testing.T) {
	if _, err := Run(t.Context(), Options{Mode: "politely"}); err == nil || fmt.Sprint(err) == "" {
		t.Error("a mode that there is not runs")
	}
	if Fatal("politely") || WithPeer("politely") {
		t.Error("a mode that there is not has properties")
	}
}
