package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"multiedge/bench/report"
	"multiedge/internal/identity"
	"multiedge/internal/lab"
	"multiedge/internal/secure"
)

// Server and client as on two real hosts: each knows its daemon's socket, the client the other node's name.
func TestServerAndClientOnTwoHosts(t *testing.T) {
	l, err := lab.New(t.Context(), lab.Spec{})
	must(t, err)
	defer l.Close()
	dir := t.TempDir()
	start := func(host int, cmd *exec.Cmd) *lab.Process {
		p, err := l.Host(host).Start(cmd)
		must(t, err)
		return p
	}
	socket := func(host int) string { return filepath.Join(dir, fmt.Sprintf("%d.sock", host)) }
	file := func(host int, what string) string { return filepath.Join(dir, fmt.Sprintf("%d.%s", host, what)) }
	for i := range 2 {
		key, _, err := identity.LoadKey(file(1-i, "key"))
		must(t, err)
		if _, err := identity.AddPeer(file(i, "peers"), secure.Peer{Name: fmt.Sprintf("node%d", 1-i),
			Key: key.Public()}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		daemon, _, _ := edgebench("lab-daemon",
			fmt.Sprintf("name = \"node%d\"\nsocket = %q\nkey_file = %q\npeers_file = %q\n[log]\nlevel = "+
				"\"error\"\n[[link]]\nname = \"edge0\"\n", i, socket(i), file(i, "key"), file(i, "peers")))
		start(i, daemon)
		waitFor(t, "the daemon", func() bool {
			found, err := filepath.Glob(socket(i))
			return err == nil && len(found) == 1
		})
	}
	serverCmd, _, serverErr := edgebench("server", "--socket", socket(1), "--region", "2m")
	server := start(1, serverCmd)
	clientCmd, stdout, clientErr := edgebench("read", "node1", "--socket", socket(0), "-s", "64,100k", "-n", "100",
		"--region", "2m", "--integrity", "--format", "json", "-b")
	if err := start(0, clientCmd).Wait(); err != nil {
		t.Fatalf("client: %v: %s; server: %s", err, clientErr, serverErr)
	}
	f, err := report.Parse(stdout.Bytes())
	must(t, err)
	for _, r := range f.Results {
		if r.Operations != 200 || r.IntegrityErrors != 0 || f.Lab != nil || r.OtherCPU != 0 || r.LinkRates != nil ||
			r.Security != "encrypted" {
			t.Errorf("%+v", r)
		}
	}
	must(t, server.Signal(syscall.SIGINT))
	_ = server.Wait()
	if text := serverErr.String(); !strings.Contains(text, "waiting for clients") || !strings.Contains(text,
		"client on node0") {
		t.Errorf("the server said %q", text)
	}
}
