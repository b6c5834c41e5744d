package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/secure"
)

// overIP runs a daemon with the files of a directory and an IP link.
func overIP(t *testing.T, name, dir, listen string) (sock string) {
	t.Helper()
	sock = filepath.Join(dir, name+".sock")
	d, err := daemon.New(config.Config{Name: name, Socket: sock, Links: []config.Link{{Listen: listen}},
		KeyFile: filepath.Join(dir, "key"), PeersFile: filepath.Join(dir, "peers"), Poll: "block",
		Timing: config.Timing{DialTimeout: 300 * time.Millisecond}}, daemon.Options{Version: version})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-d.Ready()
	return sock
}

// freePorts are UDP ports of this host that nobody has.
func freePorts(t *testing.T, n int) (at []string) {
	t.Helper()
	for range n {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		defer c.Close()
		at = append(at, c.LocalAddr().String())
	}
	return at
}

// doctor --reach dials the peer: it says that it answers and sends its datagrams as one message, or where it was asked
// in vain and what rule to open.
func TestDoctorReaches(t *testing.T) {
	wait, sample := reachWait, reachSample
	reachWait, reachSample = 400*time.Millisecond, time.Millisecond
	defer func() { reachWait, reachSample = wait, sample }()
	dirA, dirB := keys(t)
	at := freePorts(t, 3)
	key, err := identity.ReadKey(filepath.Join(dirB, "key"))
	must(t, err)
	_, err = identity.AddPeer(filepath.Join(dirA, "peers"), secure.Peer{Name: "b", Key: key.Public(),
		Endpoints: at[2]}) // where nobody is
	must(t, err)
	a := overIP(t, "a", dirA, at[0])
	overIP(t, "b", dirB, at[1])
	code, out, _ := ctl("-s", a, "doctor", "--reach", "b")
	_, port, _ := net.SplitHostPort(at[2])
	if code != 1 || !strings.Contains(out, "no answer from "+at[2]) || !strings.Contains(out, "inbound UDP "+port) {
		t.Errorf("at a wrong endpoint: %d\n%s", code, out)
	}
	if code, _, errs := ctl("-s", a, "peers", "add", key.Public().String(), "b", "--endpoint", at[1]); code != 0 {
		t.Fatal(errs)
	}
	reachWait = wait
	_, out, _ = ctl("-s", a, "doctor", "--reach", "b")
	if !strings.Contains(out, "reach b: answers within") || !strings.Contains(out, "receive buffer holds") ||
		strings.Contains(out, "NAT") {
		t.Errorf("at the right one:\n%s", out)
	}
}

// A lane that moves what clouds leave to one flow is a hint to use more of them; others are none.
func TestLanesAtTheirCap(t *testing.T) {
	peer := func(bytes ...uint64) []inspect.PeerStatus {
		p := inspect.PeerStatus{Name: "b", Node: "1"}
		for k, n := range bytes {
			p.Paths = append(p.Paths, inspect.PathStatus{Link: []string{":9470", ":9470/1"}[k], SeenAs: "10.0.0.1:9470",
				Counters: inspect.Counts{"bytes": n}})
		}
		return []inspect.PeerStatus{{Name: "c", Node: "2"}, p}
	}
	const second = 620e6 // bytes at 4.96 Gbit/s
	found := capped("b", peer(7, 9), peer(7+second, 9+second/2), 1)
	if len(found) != 1 || !strings.HasPrefix(found[0].Text, ":9470 moves 5.0 Gbit/s") ||
		!strings.Contains(found[0].Remedy, "lanes = 8") {
		t.Errorf("%+v", found)
	}
	if found = capped("c", peer(7, 9), peer(7+second, 9), 1); len(found) != 0 {
		t.Errorf("of another peer: %+v", found)
	}
}
