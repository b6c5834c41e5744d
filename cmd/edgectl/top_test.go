package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/linkdrv/linktest"
)

func TestTopOnce(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	var out bytes.Buffer
	g := asker(a, &out, pingBetween(t, a))
	must(t, (&topCmd{Interval: time.Second}).Run(g))
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
	must(t, (&topCmd{Interval: time.Second}).Run(g))
	var r topReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Name != "a" || len(r.Links) != 1 || len(r.Peers) != 1 ||
		r.Peers[0].Rates["frames"] <= 0 || r.Conns == nil {
		t.Errorf("%v %s", err, &out)
	}
	if code, _, errs := ctl("-s", a, "top", "-i", "1ms"); code != 0 {
		t.Errorf("in milliseconds: %d %s", code, errs)
	}
	if code, _, errs := ctl("-s", a, "top", "-i", "0"); code != 2 || !strings.Contains(errs, "more than 0") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := ctl("-s", a+"x", "top"); code != 1 || !strings.Contains(errs, "start one") {
		t.Errorf("%d %s", code, errs)
	}
}

// terminal makes a pair of pseudo-terminal ends: what a program sees, and what a person does.
func terminal(t *testing.T, rows, columns uint16) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must(t, err)
	fd := int(person.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	resize(t, person, rows, columns)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { person.Close(); program.Close() })
	return program, person
}

func resize(t *testing.T, person *os.File, rows, columns uint16) {
	t.Helper()
	must(t, unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows,
		Col: columns}))
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

// What terminals understand.
const (
	otherScreen, firstScreen = "\x1b[?1049h", "\x1b[?1049l"
	hideCursor, showCursor   = "\x1b[?25l", "\x1b[?25h"
)

// topOn runs top on a terminal.
func topOn(t *testing.T, sock string, program *os.File) (ended chan error) {
	t.Setenv("TERM", "xterm")
	g := &globals{Socket: sock, Timeout: 10 * time.Second, in: program, out: program, pause: time.Sleep}
	ended = make(chan error, 1)
	go func() { ended <- (&topCmd{Interval: 10 * time.Millisecond}).Run(g) }()
	return ended
}

func signalled(t *testing.T, s unix.Signal) {
	t.Helper()
	must(t, unix.Kill(os.Getpid(), s))
}

// On a terminal it draws until it is told to end, and leaves the terminal as it was.
func TestTopLive(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	for name, end := range map[string]func(*testing.T, *os.File){
		"q": typed("xq"), "Q": typed("Q"), "Ctrl-C": typed("\x03"), "Ctrl-D": typed("\x04"),
		// as it sends them when asked to tell keys apart
		"xterm's Q": typed("\x1b[27;2;81~"), "xterm's Ctrl-C": typed("\x1b[27;5;99~"),
		"SIGINT":  func(t *testing.T, _ *os.File) { signalled(t, unix.SIGINT) },
		"SIGTERM": func(t *testing.T, _ *os.File) { signalled(t, unix.SIGTERM) },
		"SIGHUP":  func(t *testing.T, _ *os.File) { signalled(t, unix.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			program, person := terminal(t, 30, 100)
			was := settings(t, program)
			ended := topOn(t, a, program)
			if all := seen(t, person, "UNREAD"); !strings.Contains(all, otherScreen) || !strings.Contains(all,
				hideCursor) || strings.Contains(all, showCursor) {
				t.Errorf("%q", all)
			}
			if reflect.DeepEqual(settings(t, program), was) {
				t.Error("keys are echoed")
			}
			end(t, person)
			if all := seen(t, person, showCursor); !strings.Contains(all, firstScreen) {
				t.Errorf("%q", all)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if is := settings(t, program); !reflect.DeepEqual(is, was) {
				t.Errorf("the terminal is not as it was: %+v, %+v", was, is)
			}
		})
	}
}

func typed(keys string) func(*testing.T, *os.File) {
	return func(_ *testing.T, person *os.File) { person.WriteString(keys) }
}

func settings(t *testing.T, program *os.File) *unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	must(t, err)
	return s
}

// A terminal that goes ends it, also where no signal tells of that.
func TestTopLiveTerminalGone(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	program, person := terminal(t, 30, 100)
	ended := topOn(t, a, program)
	seen(t, person, "UNREAD")
	person.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Without a keyboard a signal ends it, and the terminal's settings stay.
func TestTopLiveNoKeyboard(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	program, person := terminal(t, 30, 100)
	was := settings(t, program)
	g := &globals{Socket: a, Timeout: 10 * time.Second, in: strings.NewReader("q"), out: program, pause: time.Sleep}
	ended := make(chan error, 1)
	go func() { ended <- (&topCmd{Interval: 10 * time.Millisecond}).Run(g) }()
	seen(t, person, "UNREAD")
	if !reflect.DeepEqual(settings(t, program), was) {
		t.Error("the settings of a terminal that is not read were changed")
	}
	signalled(t, unix.SIGTERM)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A terminal that changes its size is drawn anew; one that tells none has that of the first ones.
func TestTopLiveSizes(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	program, person := terminal(t, 6, 100)
	ended := topOn(t, a, program)
	if all := seen(t, person, "mem"); strings.Contains(all, "UNREAD") {
		t.Errorf("more than six lines: %q", all)
	}
	resize(t, person, 0, 0)
	signalled(t, unix.SIGWINCH) // of this terminal the kernel does not send it: it is not that of the test
	if all := seen(t, person, "UNREAD"); strings.Contains(all, otherScreen) {
		t.Errorf("%q", all)
	}
	person.WriteString("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A daemon that goes is waited for.
func TestTopLiveOverAnEnd(t *testing.T) {
	x, _ := linktest.Pair(9000, 256)
	dir, _ := keys(t)
	sock, stop := start(t, "a", dir, config.Encrypted, x)
	program, person := terminal(t, 30, 100)
	ended := topOn(t, sock, program)
	seen(t, person, "UNREAD")
	stop()
	seen(t, person, "waiting")
	x, _ = linktest.Pair(9000, 256)
	start(t, "a", dir, config.Encrypted, x)
	seen(t, person, "UNREAD")
	person.WriteString("q")
	seen(t, person, firstScreen)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRank(t *testing.T) {
	link := func(name string, bytes uint64) inspect.LinkStatus {
		return inspect.LinkStatus{Name: name, Up: true, Counters: inspect.Counts{"bytes_sent": bytes}}
	}
	peer := func(name string, paths ...uint64) inspect.PeerStatus {
		p := inspect.PeerStatus{Name: name, Node: name}
		for i, n := range paths {
			p.Paths = append(p.Paths, inspect.PathStatus{SRTT: int64(1000 * (len(paths) - i)),
				Counters: inspect.Counts{"bytes": n}})
		}
		return p
	}
	before, now := &fullSample{}, &fullSample{}
	before.status.UptimeSeconds, now.status.UptimeSeconds = 5, 7
	before.links = []inspect.LinkStatus{link("quiet", 1000), link("busy", 10), link("anew", 900)}
	now.links = []inspect.LinkStatus{link("quiet", 1000), link("busy", 210), link("anew", 100)}
	before.peers = []inspect.PeerStatus{peer("far", 5), peer("near", 0, 0)}
	now.peers = []inspect.PeerStatus{peer("far", 6), peer("near", 4, 4)}
	before.conns = []inspect.ConnStatus{{ID: 1, Submitted: 1<<32 - 2}, {ID: 2, Submitted: 7}, {ID: 1, Shard: 1}}
	now.conns = []inspect.ConnStatus{{ID: 2, Submitted: 7, Outstanding: 3}, {ID: 3}, {ID: 1, Submitted: 2},
		{ID: 1, Shard: 1, Submitted: 1}}
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
	if want := "[busy 100 anew 50 quiet 0 near 4 1000 far 0.5 1000 1 2 0 1 0.5 0 2 0 3 3 0 0]"; fmt.Sprint(
		got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// What there is no room for is left out.
func TestReportRoom(t *testing.T) {
	r := &topReport{Connections: mostConns + 1}
	for i := range 40 {
		r.Links = append(r.Links, topLink{Name: fmt.Sprint("eth", i)})
	}
	text := r.text(24, allTables, 0)
	if !strings.Contains(text, "... and 35 more") || !strings.Contains(text, "edgectl conn") || strings.Count(text,
		"eth") != 5 {
		t.Error(text)
	}
	text = r.text(24, onlyLinks, 0)
	if lines := strings.Split(text, "\n"); lines[23] != "... and 21 more" || strings.Count(text, "eth") != 19 {
		t.Error(text)
	}
}
