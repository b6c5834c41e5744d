package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// A client that attaches in the last moment is detached with the others: its control connection ends, and with it the
// daemon.
func TestHelloWhileStopping(t *testing.T) {
	x, y := linktest.PairN(0, 9000, 64)
	defer y.Close()
	d, err := prepare(config.Config{Name: "a", Security: config.Plaintext, Links: []config.Link{{Name: "l"}}}, Options{
		Log: logTo(t), Open: func(config.Link, linkdrv.Options) (linkdrv.Driver, error) { return x, nil },
	})
	must(t, err)
	defer x.Close()
	ours, theirs, err := ipc.Pair()
	must(t, err)
	d.serve(ours)
	must(t, theirs.Send(ipc.Hello(0)))
	until(t, "hello waits for the shard", deadline, func() bool { return shard.Inside{Shard: d.shard}.Jobs() == 1 })
	d.Close() // the shard ends without another iteration
	theirs.Close()
	ended := make(chan struct{})
	go func() {
		d.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("the control connection never ends")
	}
}

// What a daemon that is stopping cannot serve any more is told as that, and not as a fault of the daemon.
func TestRefusalWhileStopping(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	a.Close()
	err := a.d.shard.Do(func(mono.Time) {})
	if e := (&ipc.Message{}).Fail(err).Error; e.Code != ipc.CodeDraining {
		t.Errorf("refused with %+v", e)
	}
}

// An orderly stop takes no link down in the log: nothing is wrong with them.
func TestStopIsQuiet(t *testing.T) {
	var log bytes.Buffer
	x, y := linktest.PairN(0, 9000, 64)
	defer y.Close()
	e, err := NewEmbedded(
		config.Config{Name: "a", Security: config.Plaintext, Links: []config.Link{{Name: "l"}}, Poll: "block"},
		Options{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Open: func(config.Link, linkdrv.Options) (linkdrv.Driver,
				error) {
				return x, nil
			},
		},
	)
	must(t, err)
	e.Close()
	if out := log.String(); !strings.Contains(out, "link up") || strings.Contains(out, "link down") {
		t.Errorf("the log of a start and a stop:\n%s", out)
	}
}

// A daemon shows its clients that it runs, whether it has work or sleeps.
func TestPulse(t *testing.T) {
	for _, poll := range []string{"block", "busy"} {
		a, _ := nodes(t, 1, func(c *config.Config) { c.Poll = poll })
		c := attach(t, a, 64)
		first := c.rings.Pulse()
		if first == 0 {
			t.Error("no pulse after attaching")
		}
		until(t, "two beats under poll = "+poll, deadline, func() bool { return c.rings.Pulse() >= first+2 })
	}
}

// A daemon that is drained takes no memory.
func TestDrainedDaemonTakesNoMemory(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := attach(t, a, 64)
	c.must(&ipc.Message{Kind: ipc.KindDrain})
	c.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 4096}, ipc.CodeDraining)
}
