package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
)

// looked is a look at a run of a daemon, with two connections that are busy in different ways.
func looked(epoch string, uptime float64, link string) look {
	s := &fullSample{}
	s.status = inspect.Status{
		Name:    "host",
		Epoch:   epoch,
		Process: inspect.Process{UptimeSeconds: uptime},
		Totals:  inspect.Totals{Connections: 2},
	}
	s.links = []inspect.LinkStatus{{Name: link, Up: true}}
	s.peers = []inspect.PeerStatus{{Name: "other", Node: "n"}}
	s.conns = []inspect.ConnStatus{{ID: 71, Submitted: uint32(100 * uptime), Unread: 1}, {ID: 72, Outstanding: 5,
		Unread: 1}, {ID: 73, Held: 9}}
	return look{s, nil}
}

func key(text string) tea.Msg {
	switch text {
	case "tab":
		return tea.KeyPressMsg{Code: tea.KeyTab}
	case "ctrl+c", "ctrl+d":
		return tea.KeyPressMsg{Code: rune(text[5]), Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: rune(text[0]), Text: text}
}

// Each step is an event and a pattern of what is seen after it.
func TestLiveShows(t *testing.T) {
	m := tea.Model(live{before: looked("first", 1, "eth0").fullSample, note: "looking ..."})
	m, _ = m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	height, keys := 24, `q: end   tab: only links   s: connections by OUTSTANDING$`
	const above, links, peers, conns = `^host  up .*\nin .*\n\n`, `LINK .*\neth0 .*\n\n`, `PEER .*\nother .*\n\n`,
		`CONN .*\n`
	for i, step := range []struct {
		event tea.Msg
		want  string
	}{
		{nil, `^looking \.\.\.\n+q: end   tab: only links   s: connections by OUTSTANDING$`},
		{looked("first", 2, "eth0"), above + links + peers + conns + "71 .* 100 .*\n72 .*\n73 .*\n+" + keys},
		{key("x"), above + links + peers + conns + "71 .*\n72 .*\n73 "},
		{key("s"), conns + "72 .*\n71 .*\n73 .*\n+q: end   tab: only links   s: connections by HELD$"},
		{looked("first", 3, "eth0"), conns + "72 .*\n71 .*\n73 "},
		{key("s"), conns + "73 .*\n71 .*\n72 .*\n+q:.* by UNREAD$"},
		{key("s"), conns + "71 .*\n72 .*\n73 .*\n+q:.* by OPS/S$"},
		{key("s"), conns + "71 .*\n72 .*\n73 .*\n+" + keys},
		{key("tab"), above + links + `\n+q: end   tab: only peers   s: `},
		{looked("first", 4, "eth0"), above + links + `\n+q: `},
		{key("tab"), above + peers + `\n+q: end   tab: only connections   s: `},
		{key("tab"), above + conns + "71 .*\n72 .*\n73 .*\n+q: end   tab: all tables   s: "},
		{key("tab"), above + links + peers + conns},
		{tea.WindowSizeMsg{Width: 80, Height: 7}, above + links + `q: .*$`},
		{tea.WindowSizeMsg{Width: 80, Height: 1}, `^q: .*$`},
		{tea.WindowSizeMsg{Width: 80, Height: 30}, above + links + peers + conns},
		{look{nil, fmt.Errorf("%w at /some/socket", errNoDaemon)},
			`^the daemon is gone: no daemon runs at /some/socket\n\nwaiting for it; q ends\n+` + keys},
		{key("x"), `^the daemon is gone: `},
		{looked("first", 5, "eth0"), above + links + peers + conns},
		{look{nil, errNoDaemon}, `^the daemon is gone: `},
		{looked("second", 1, "eth0"), `^the daemon was restarted: its counters begin anew\n+` + keys},
		{looked("second", 2, "eth0"), above + links + peers + conns + "71 .* 100 "},
		{looked("second", 3, "\x1b[2J\u009bä\x07\u202e"), `\n\?\[2J\?ä\?\? +up `},
	} {
		var cmd tea.Cmd
		m, cmd = m.Update(step.event)
		if size, ok := step.event.(tea.WindowSizeMsg); ok {
			height = size.Height
		}
		v := m.View()
		if !regexp.MustCompile(step.want).MatchString(v.Content) || strings.Count(v.Content, "\n") != height-1 ||
			!v.AltScreen || v.Cursor != nil {
			t.Errorf("step %d: no %q in\n%s", i, step.want, v.Content)
		}
		if _, ok := step.event.(look); ok != (cmd != nil) {
			t.Errorf("step %d: after a look, and only then, there is another: %v", i, cmd != nil)
		}
	}
}

func TestLiveKeysThatEnd(t *testing.T) {
	for _, text := range []string{"q", "Q", "ctrl+c", "ctrl+d"} {
		_, cmd := live{}.Update(key(text))
		if cmd == nil {
			t.Errorf("%s does nothing", text)
		} else if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%s does not end it", text)
		}
	}
}

// A look waits for its time and carries what the daemon said, or why it did not.
func TestLiveLooks(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	var waited time.Duration
	g := &globals{Socket: a, Timeout: 10 * time.Second, pause: func(d time.Duration) { waited += d }}
	m := live{g: g, pause: time.Minute}
	if l := m.Init()().(look); l.err != nil || l.status.Name != "a" || len(l.links) != 1 || waited != time.Minute {
		t.Errorf("%+v, waited %v", l, waited)
	}
	g.Socket += "x"
	if l := m.look().(look); l.err == nil {
		t.Error("a look at no daemon found one")
	}
}

func TestSized(t *testing.T) {
	for _, tc := range []struct{ msg, want tea.Msg }{
		{tea.WindowSizeMsg{Width: 100, Height: 30}, tea.WindowSizeMsg{Width: 100, Height: 30}},
		{tea.WindowSizeMsg{}, tea.WindowSizeMsg{Width: 80, Height: 24}},
		{tea.WindowSizeMsg{Width: 100}, tea.WindowSizeMsg{Width: 80, Height: 24}},
		{tea.QuitMsg{}, tea.QuitMsg{}},
	} {
		if got := sized(nil, tc.msg); got != tc.want {
			t.Errorf("%#v: %#v, want %#v", tc.msg, got, tc.want)
		}
	}
}
