package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"multiedge/internal/daemon"
	"multiedge/linkdrv/linktest"
)

func TestTopOnce(t *testing.T) {
	a, _ := pair(t, daemon.Encrypted)
	var out bytes.Buffer
	g := asker(a, &out, pingBetween(t, a))
	if err := (&topCmd{Interval: 1}).Run(g); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a  up ", "LINK", "mem", "PEER", "b     open", "CONN"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("what is for terminals in what is not one")
	}
	out.Reset()
	g.JSON = true
	if err := (&topCmd{Interval: 1}).Run(g); err != nil {
		t.Fatal(err)
	}
	var r topReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Name != "a" || len(r.Links) != 1 || len(r.Peers) != 1 || r.Peers[0].Rates["frames"] <= 0 || r.Conns == nil {
		t.Errorf("%v %s", err, &out)
	}
	if code, _, errs := ctl("-s", a, "top", "-i", "0"); code != 1 || !strings.Contains(errs, "more than 0") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := ctl("-s", a+"x", "top"); code != 1 || !strings.Contains(errs, "start one") {
		t.Errorf("%d %s", code, errs)
	}
}

// terminal makes a pair of pseudo-terminal ends: what a program sees, and what a person does.
func terminal(t *testing.T) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close(); program.Close() })
	return program, person
}

// seen reads what is shown until it contains want.
func seen(t *testing.T, person *os.File, want string) (all string) {
	t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(all, want) {
		n, err := person.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, all)
		}
		all += string(buf[:n])
	}
	return all
}

// On a terminal it draws until it is told to end, and leaves the terminal as it was.
func TestTopLive(t *testing.T) {
	a, _ := pair(t, daemon.Encrypted)
	for _, key := range []string{"q", "\x03"} {
		program, person := terminal(t)
		was, err := term.GetState(int(program.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		g := asker(a, program, nil)
		g.in = program
		ended := make(chan error, 1)
		go func() { ended <- (&topCmd{Interval: 0.001}).Run(g) }()
		if all := seen(t, person, "UNREAD"); !strings.HasPrefix(all, enterScreen) {
			t.Errorf("%q", all)
		}
		person.WriteString("x" + key)
		if all := seen(t, person, leaveScreen); strings.Contains(all[strings.Index(all, leaveScreen):], toTop) {
			t.Errorf("drawn after the end: %q", all)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		is, err := term.GetState(int(program.Fd()))
		if err != nil || !reflect.DeepEqual(is, was) {
			t.Errorf("the terminal is not as it was: %+v, %+v, %v", was, is, err)
		}
	}
}

// A daemon that goes is waited for.
func TestTopLiveOverAnEnd(t *testing.T) {
	x, _ := linktest.Pair(9000, 256)
	dir, _ := keys(t)
	sock, stop := start(t, "a", dir, daemon.Encrypted, x)
	program, person := terminal(t)
	g := asker(sock, program, nil)
	ended := make(chan error, 1)
	g.in = program
	go func() { ended <- (&topCmd{Interval: 0.001}).Run(g) }()
	seen(t, person, "UNREAD")
	stop()
	seen(t, person, "the daemon is gone")
	x, _ = linktest.Pair(9000, 256)
	start(t, "a", dir, daemon.Encrypted, x)
	seen(t, person, "UNREAD")
	person.WriteString("q")
	seen(t, person, leaveScreen)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRank(t *testing.T) {
	link := func(name string, bytes uint64) daemon.LinkStatus {
		return daemon.LinkStatus{Name: name, Up: true, Counters: daemon.Counts{"bytes_sent": bytes}}
	}
	peer := func(name string, paths ...uint64) daemon.PeerStatus {
		p := daemon.PeerStatus{Name: name, Node: name}
		for i, n := range paths {
			p.Paths = append(p.Paths, daemon.PathStatus{SRTT: int64(1000 * (len(paths) - i)), Counters: daemon.Counts{"bytes": n}})
		}
		return p
	}
	before, now := &fullSample{}, &fullSample{}
	before.status.UptimeSeconds, now.status.UptimeSeconds = 5, 7
	before.links = []daemon.LinkStatus{link("quiet", 1000), link("busy", 10), link("anew", 900)}
	now.links = []daemon.LinkStatus{link("quiet", 1000), link("busy", 210), link("anew", 100)}
	before.peers = []daemon.PeerStatus{peer("far", 5), peer("near", 0, 0)}
	now.peers = []daemon.PeerStatus{peer("far", 6), peer("near", 4, 4)}
	before.conns = []daemon.ConnStatus{{ID: 1, Submitted: 1<<32 - 2}, {ID: 2, Submitted: 7}, {ID: 1, Shard: 1}}
	now.conns = []daemon.ConnStatus{{ID: 2, Submitted: 7, Outstanding: 3}, {ID: 3}, {ID: 1, Submitted: 2}, {ID: 1, Shard: 1, Submitted: 1}}
	r := rank(now, before)
	var got []string
	for _, l := range r.Links {
		got = append(got, fmt.Sprint(l.Name, " ", l.Rates["bytes_sent"]))
	}
	for _, p := range r.Peers {
		got = append(got, fmt.Sprint(p.Name, " ", p.Rates["bytes"], " ", p.SRTT))
	}
	for _, c := range r.Conns {
		got = append(got, fmt.Sprint(c.ID, " ", c.Operations, " ", c.Outstanding))
	}
	if want := "[busy 100 anew 50 quiet 0 near 4 1000 far 0.5 1000 1 2 0 1 0.5 0 2 0 3 3 0 0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// What there is no room for is left out, and nothing in a name reaches the terminal as a command.
func TestScreenRoom(t *testing.T) {
	r := &topReport{Connections: mostConns + 1}
	for i := range 40 {
		r.Links = append(r.Links, topLink{Name: fmt.Sprint("eth", i)})
	}
	text := r.text(24)
	if !strings.Contains(text, "... and 35 more") || !strings.Contains(text, "edgectl conn") || strings.Count(text, "eth") != 5 {
		t.Error(text)
	}
	if got := clip("\x1b[2Jäbc\u009bdef", 8); got != "?[2Jäbc?" {
		t.Errorf("%q", got)
	}
}
