package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

func memoryLink(config.Link, linkdrv.Options) (linkdrv.Driver, error) {
	a, _ := linktest.Pair(1500, 16)
	return a, nil
}

// run starts a daemon with a socket and returns how to stop it.
func run(t *testing.T, cfg config.Config) (stop func()) {
	t.Helper()
	d, err := New(cfg, Options{Log: logTo(t), Open: memoryLink})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	<-d.Ready()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// What a client can delay without end does not keep the next daemon from starting.
func TestStopDoesNotWaitForEver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "edged.sock")
	cfg := keyed(t, config.Config{Socket: socket, Links: []config.Link{{Name: "mem"}}})
	late := make(chan time.Time)
	close(late)
	d, err := New(cfg, Options{Log: logTo(t), Open: memoryLink,
		after: func(time.Duration) <-chan time.Time { return late }})
	must(t, err)
	stuck := make(chan struct{})
	defer close(stuck)
	d.tasks.Go(func() { <-stuck })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(deadline):
		t.Fatal("it waits for what does not end")
	}
	next, err := New(cfg, Options{Log: logTo(t), Open: memoryLink})
	must(t, err)
	next.Close()
}

func TestOneDaemonPerSocket(t *testing.T) {
	cfg := keyed(
		t,
		config.Config{Socket: filepath.Join(t.TempDir(), "sub", "edged.sock"), Links: []config.Link{{Name: "mem"}},
			Mode: "0600"},
	)
	files := openFiles(t)
	stop := run(t, cfg)
	if st, err := os.Stat(cfg.Socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("socket: %v %v", st, err)
	}
	conn, err := ipc.Dial(t.Context(), cfg.Socket)
	must(t, err)
	_, err = New(cfg, Options{Open: memoryLink})
	if err == nil || !strings.Contains(err.Error(), "another daemon (process ") || !strings.Contains(err.Error(),
		"--socket") {
		t.Fatalf("second daemon: %v", err)
	}
	must(t, conn.Send(&ipc.Message{ID: 1, Kind: ipc.KindVersion}))
	if m, err := conn.Recv(); err != nil || m.Error != nil {
		t.Fatalf("the first daemon suffered: %v %v", m, err)
	}
	stop()
	if _, err := conn.Recv(); err == nil {
		t.Fatal("a stopped daemon answers")
	}
	conn.Close()
	if _, err := os.Stat(cfg.Socket); !os.IsNotExist(err) {
		t.Fatalf("the socket stays: %v", err)
	}
	// A socket that a killed daemon left behind is replaced.
	l, err := ipc.Listen(cfg.Socket, 0o600)
	must(t, err)
	os.Rename(cfg.Socket, cfg.Socket+".kept")
	l.Close()
	os.Rename(cfg.Socket+".kept", cfg.Socket)
	run(t, cfg)()
	until(t, "descriptors closed", deadline, func() bool { return openFiles(t) <= files })
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	must(t, os.WriteFile(plain, nil, 0o600))
	sock := filepath.Join(dir, "s.sock")
	tests := []struct {
		name string
		cfg  config.Config
		o    Options
		want []string
	}{
		{"no link", config.Config{Socket: sock}, Options{}, []string{"edged --link"}},
		{"unknown interface", config.Config{Socket: sock, Links: []config.Link{{Name: "no-such-if"}}}, Options{},
			[]string{"no-such-if", "lo", "--wait-links"}},
		{"not Ethernet", config.Config{Socket: sock, Links: []config.Link{{Name: "lo"}}}, Options{}, []string{"lo"}},
		{
			"socket path is a file",
			config.Config{Socket: plain, Links: []config.Link{{Name: "m"}}},
			Options{Open: memoryLink},
			[]string{"not a socket"},
		},
		{"socket directory is a file", config.Config{Socket: plain + "/s", Links: []config.Link{{Name: "m"}}},
			Options{Open: memoryLink}, []string{"--socket", ipc.SocketEnv}},
		{"unknown group", config.Config{Socket: sock, Group: "no-such-group", Links: []config.Link{{Name: "m"}}},
			Options{Open: memoryLink}, []string{"groupadd"}},
	}
	files := openFiles(t)
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(plaintext(tc.cfg), tc.o)
			if err == nil {
				t.Fatal("started")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not mention %q", err, w)
				}
			}
		})
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d descriptors left behind", now-files)
	}
	d, err := New(
		plaintext(config.Config{Socket: sock, WaitLinks: true, Links: []config.Link{{Name: "no-such-if"}}}),
		Options{},
	)
	if err != nil {
		t.Fatalf("with wait-links: %v", err)
	}
	d.Close()
}
