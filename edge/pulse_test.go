package edge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A daemon whose pulse stands still is reported in the log and in what a wait returns when its context ends; nothing
// else happens, and it is over with the next beat. One that never gave a pulse is not judged.
func TestSilentDaemon(t *testing.T) {
	var log lockedBuffer
	p := newDuo(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, 4096)
	a := p.client.at.Load()
	p.f.setHold(true)
	op, err := p.out.Post(NoWait, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
	must(t, err)
	look := func() {
		for range 2 * pulseLooks {
			p.client.checkPulse(a)
		}
	}
	waits := func(want bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(testContext(t))
		failed := make(chan error, 4)
		go func() { failed <- op.Wait(ctx) }()
		go func() { _, err := p.out.WaitNotify(ctx); failed <- err }()
		go func() { _, err := p.out.Import(ctx, "never"); failed <- err }()
		go func() { _, err := p.client.Dial(ctx, "fake", "svc"); failed <- err }() // nobody accepts
		cancel()
		for range 4 {
			if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, ErrDaemonSilent) != want {
				t.Errorf("silence %v, error %v", want, err)
			}
		}
	}
	look()
	waits(false)
	a.rings.BeatPulse()
	look()
	waits(true)
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
	must(t, p.client.Err())
	a.rings.BeatPulse()
	p.client.checkPulse(a)
	waits(false)
	if !strings.Contains(log.String(), "runs again") {
		t.Errorf("the return is not in the log:\n%s", log.String())
	}
	p.f.release()
	must(t, op.Wait(testContext(t)))
}
