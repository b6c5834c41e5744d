package edge

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"multiedge/internal/ipc"
)

// Who dials through the local daemon while another waits for it to answer waits no longer than its own context.
func TestSlowDefaultDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edged.sock")
	t.Setenv(ipc.SocketEnv, path)
	l, err := ipc.Listen(path, 0o600)
	must(t, err)
	defer l.Close()
	slow, giveUp := context.WithCancel(testContext(t))
	defer giveUp()
	first := make(chan error, 1)
	go func() { _, err := Dial(slow, "peer", "svc"); first <- err }()
	hung, err := l.Accept()
	must(t, err)
	defer hung.Close()
	_, err = hung.Recv() // the greeting, which is not answered
	must(t, err)

	over, cancel := context.WithCancel(context.Background())
	cancel()
	for what, open := range map[string]func() error{
		"dial":   func() error { return second(Dial(over, "peer", "svc")) },
		"listen": func() error { return second(Listen(over, "svc")) },
	} {
		if err := open(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	select {
	case err := <-first:
		t.Errorf("the others waited for the first, which ended with %v", err)
	default:
		giveUp()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	}
}
