package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// keys makes the key and peers files of two nodes that authorise each other, each in a directory of its own, and
// returns them.
func keys(t *testing.T) (a, b string) {
	t.Helper()
	a, b = t.TempDir(), t.TempDir()
	for dir, peer := range map[string]string{a: b, b: a} {
		name := map[string]string{a: "a", b: "b"}[peer]
		k, _, err := identity.LoadKey(filepath.Join(peer, "key"))
		if err == nil {
			_, err = identity.AddPeer(filepath.Join(dir, "peers"), secure.Peer{Name: name, Key: k.Public()})
		}
		must(t, err)
	}
	return a, b
}

// pair runs two daemons joined in memory and returns their sockets; key and peers files are beside them.
func pair(t *testing.T, security string) (a, b string) {
	t.Helper()
	x, y := linktest.Pair(9000, 256)
	dirA, dirB := keys(t)
	a, _ = start(t, "a", dirA, security, x)
	b, _ = start(t, "b", dirB, security, y)
	return a, b
}

// start runs a daemon with the files of a directory and returns its socket, which is in there too, and what stops it.
func start(t *testing.T, name, dir, security string, drv linkdrv.Driver) (sock string, stop func()) {
	t.Helper()
	sock = filepath.Join(dir, name+".sock")
	cfg := config.Config{Name: name, Socket: sock, Links: []config.Link{{Name: "mem"}}, Security: security,
		KeyFile: filepath.Join(dir, "key"), PeersFile: filepath.Join(dir, "peers")}
	d, err := daemon.New(cfg, daemon.Options{
		Version: "1.2.3", Open: func(config.Link, linkdrv.Options) (linkdrv.Driver, error) { return drv, nil },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	<-d.Ready()
	return sock, stop
}

func ctl(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func TestCommands(t *testing.T) {
	a, b := pair(t, config.Encrypted)
	if code, out, errs := ctl("-s", b, "ping", "a", "-c", "2", "-i", "1ms"); code != 0 || strings.Count(out,
		"time=") != 2 {
		t.Fatalf("ping: %d %s %s", code, out, errs)
	}
	if code, out, errs := ctl("-s", b, "ping", "a", "-c", "2", "-i", "0.001", "-W", "5", "--timeout",
		"10"); code != 0 || !strings.Contains(out, "a: 2 of 2 answered, round trip min ") {
		t.Fatalf("ping, in seconds: %d %s %s", code, out, errs)
	}
	for _, tc := range []struct {
		cmd  string
		want []string
	}{
		{"status", []string{"node       a", "links      1 of 1 up", "frames_sent"}},
		{"dev", []string{"DEVICE", "a", "serving", "1/1", "encrypted"}},
		{"link", []string{"LINK", "mem", "up", "9000"}},
		{"peer", []string{"PEER", "b", "good", "KEY"}}, {"peers list", []string{"PEER", "b", "open", filepath.Dir(a)}},
		{"key show", []string{"="}},
		{"conn", []string{"CONN"}}, {"export", []string{"NAME", "PEER"}},
		{"region", []string{"REGION"}}, {"client", []string{"PID"}},
		{"version", []string{"edged   1.2.3"}}, {"doctor", []string{"link mem"}}, {"drain", []string{"draining"}},
	} {
		code, out, errs := ctl(append([]string{"-s", a}, strings.Fields(tc.cmd)...)...)
		if code != 0 {
			t.Errorf("%s: exit %d: %s", tc.cmd, code, errs)
		}
		for _, w := range tc.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", tc.cmd, w, out)
			}
		}
		code, out, errs = ctl(append([]string{"-j", "-s", a}, strings.Fields(tc.cmd)...)...)
		if code != 0 || !json.Valid([]byte(out)) {
			t.Errorf("%s -j: exit %d: %s%s", tc.cmd, code, out, errs)
		}
	}
	if code, out, _ := ctl("-s", b, "ping", "nobody", "-c", "1", "-W", "50ms"); code != 1 || !strings.Contains(out,
		"nobody: seq=0") || strings.Contains(out, "time=") {
		t.Errorf("ping of nobody: %d %s", code, out)
	}
}

// What goes wrong is said in one line that says what to do, and nothing hangs.
func TestTroubles(t *testing.T) {
	dir := t.TempDir()
	silent := filepath.Join(dir, "silent.sock")
	l, err := net.Listen("unixpacket", silent)
	must(t, err)
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
		{"duration", []string{"ping", "b", "-i", "often"}, 2, "want seconds"},
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
	if _, out, _ := ctl("-s", dir+"/none.sock", "doctor", "-l", "no-such-if"); !strings.Contains(out, "no-such-if") ||
		!strings.Contains(out, "choose one of") {
		t.Errorf("doctor: %s", out)
	}
	if text := groupText(0); strings.Contains(text, "usermod") || !strings.Contains(text, "--group") {
		t.Errorf("a socket of group root: %s", text)
	}
	if text := groupText(1<<31 - 7); !strings.Contains(text, "usermod -aG 2147483641 ") {
		t.Errorf("a socket of another group: %s", text)
	}
	if text := dialError(silent, net.ErrClosed).Error(); text == "" {
		t.Error("no text")
	}
}

// The version is told without a daemon, and without a command.
func TestVersionFlag(t *testing.T) {
	if code, out, errs := ctl("--version"); code != 0 || out != version+"\n" || errs != "" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestPingSummary(t *testing.T) {
	r := daemon.PingReport{Peer: "b", Results: []daemon.PingResult{{Status: "ok", Nanos: 3000}, {Status: "timeout"},
		{Status: "ok", Nanos: 1000}}}
	if text := pingSummary(&r); text != "b: 2 of 3 answered, round trip min 1.0us avg 2.0us max 3.0us\n" {
		t.Errorf("%q", text)
	}
	r.Results = r.Results[1:2]
	if text := pingSummary(&r); text != "b: 0 of 1 answered\n" {
		t.Errorf("%q", text)
	}
}

// Names come from elsewhere, some from hosts that nobody authorised: they neither steer the terminal nor make lines of
// their own.
func TestNamesDoNotSteer(t *testing.T) {
	var out bytes.Buffer
	if err := table(&out, "PEER NODE", [][]any{{"b\x1b]0;x\a\u009b2J\nroot\tx", "1"}, {"", "2"}}); err != nil {
		t.Fatal(err)
	}
	if want := "PEER               NODE\nb?]0;x??2J?root?x  1\n-                  2\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	text := findingsText([]inspect.Finding{{Severity: inspect.FindingWarning, About: "peer b", Text: "slow",
		Remedy: "look"}, {Severity: inspect.FindingOK, About: "a", Text: "b"}})
	if strings.Count(text, "\n") != 3 {
		t.Errorf("%q", text)
	}
}

// Who asked for a file gets no exit code of zero for one that is not there.
func TestFullDisk(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	for _, cmd := range []string{"status", "dev", "peer", "conn", "doctor", "version", "stat", "top -i 0.001",
		"ping -c 1 b", "ping -c 1 nobody", "peers list", "peers remove b", "drain"} {
		var errs bytes.Buffer
		if code := run(append([]string{"-s", a}, strings.Fields(cmd)...), full, &errs); code != 1 ||
			!strings.Contains(errs.String(), "no space") {
			t.Errorf("%s: exit %d %q", cmd, code, errs.String())
		}
	}
}

// Under nohup the end of the terminal ends nothing.
func TestNohup(t *testing.T) {
	hangsUp := func() bool { return slices.Contains(endings(), os.Signal(syscall.SIGHUP)) }
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	if !hangsUp() {
		t.Error("the end of the terminal does not end it")
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Stop(caught)
	defer signal.Notify(caught, syscall.SIGHUP) // Reset would leave it ignored
	if hangsUp() {
		t.Error("the end of the terminal ends it under nohup")
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
