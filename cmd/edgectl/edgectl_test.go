package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/daemon"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// pair runs two daemons joined in memory and returns their sockets.
func pair(t *testing.T) (a, b string) {
	t.Helper()
	x, y := linktest.Pair(9000, 256)
	start := func(name string, drv linkdrv.Driver) string {
		sock := filepath.Join(t.TempDir(), name+".sock")
		d, err := daemon.New(daemon.Config{Name: name, Socket: sock, Links: []daemon.Link{{Name: "mem"}}}, daemon.Options{
			Version: "1.2.3", Open: func(daemon.Link, linkdrv.Options) (linkdrv.Driver, error) { return drv, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		<-d.Ready()
		return sock
	}
	return start("a", x), start("b", y)
}

func ctl(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func TestCommands(t *testing.T) {
	a, b := pair(t)
	if code, out, errs := ctl("-s", b, "ping", "a", "-c", "2", "-i", "1ms"); code != 0 || strings.Count(out, "time=") != 2 {
		t.Fatalf("ping: %d %s %s", code, out, errs)
	}
	for _, tc := range []struct {
		cmd  string
		want []string
	}{
		{"status", []string{"node       a", "links      1 of 1 up", "frames_sent"}},
		{"link", []string{"LINK", "mem", "up", "9000"}},
		{"peer", []string{"PEER", "b", "good"}},
		{"conn", []string{"CONN"}}, {"region", []string{"REGION"}}, {"client", []string{"PID"}},
		{"version", []string{"edged   1.2.3"}}, {"doctor", []string{"link mem"}}, {"drain", []string{"draining"}},
	} {
		code, out, errs := ctl("-s", a, tc.cmd)
		if code != 0 {
			t.Errorf("%s: exit %d: %s", tc.cmd, code, errs)
		}
		for _, w := range tc.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", tc.cmd, w, out)
			}
		}
		code, out, errs = ctl("-j", "-s", a, tc.cmd)
		if code != 0 || !json.Valid([]byte(out)) {
			t.Errorf("%s -j: exit %d: %s%s", tc.cmd, code, out, errs)
		}
	}
	if code, out, _ := ctl("-s", b, "ping", "nobody", "-c", "1", "-W", "50ms"); code != 1 || !strings.Contains(out, "peer-unknown") {
		t.Errorf("ping of nobody: %d %s", code, out)
	}
}

// What goes wrong is said in one line that says what to do, and nothing hangs.
func TestTroubles(t *testing.T) {
	dir := t.TempDir()
	silent := filepath.Join(dir, "silent.sock")
	l, err := net.Listen("unixpacket", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no daemon", []string{"-s", dir + "/none.sock", "status"}, 1, "start one (systemctl start edged"},
		{"silent daemon", []string{"-s", silent, "--timeout", "50ms", "link"}, 1, "did not answer within 50ms"},
		{"no command", nil, 2, "--help"},
		{"unknown command", []string{"dance"}, 2, "dance"},
		{"unknown flag", []string{"status", "--colour"}, 2, "--colour"},
		{"doctor without daemon", []string{"-s", dir + "/none.sock", "doctor", "-l", "no-such-if"}, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			code, out, errs := ctl(tc.args...)
			if code != tc.code || !strings.Contains(errs, tc.want) {
				t.Errorf("exit %d, %q; want %d and %q", code, errs, tc.code, tc.want)
			}
			if strings.Contains(errs+out, "goroutine ") || time.Since(began) > 5*time.Second {
				t.Errorf("a stack or a long wait: %v\n%s", time.Since(began), errs)
			}
		})
	}
	if _, out, _ := ctl("-s", dir+"/none.sock", "doctor", "-l", "no-such-if"); !strings.Contains(out, "no-such-if") || !strings.Contains(out, "choose one of") {
		t.Errorf("doctor: %s", out)
	}
	if text := dialError(silent, net.ErrClosed).Error(); text == "" {
		t.Error("no text")
	}
}
