package stream

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"multiedge/edge"
	"multiedge/edge/internal/memnet"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/linkdrv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testContext ends long after any test should have.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

// eventually polls a condition of the world that no channel announces.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// onDaemon starts a daemon on a network in memory, and attaches a Device to it. Both end with the test.
func onDaemon(t *testing.T, net *memnet.Net, name string) *edge.Device {
	t.Helper()
	cfg := config.Config{
		Security: config.Plaintext, Name: name, Socket: filepath.Join(t.TempDir(), "s"), Poll: "block",
		Timing: config.Timing{DialTimeout: 5 * time.Second, HelloTime: 50 * time.Millisecond},
		Links:  []config.Link{{Name: "mem0"}}, Limits: config.Limits{Couriers: 64},
	}
	d, err := daemon.New(cfg, daemon.Options{Open: func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) {
		return net.Plug(l.Name)
	}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	<-d.Ready()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	dev, err := edge.Open(testContext(t), edge.Config{Socket: cfg.Socket})
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	return dev
}
