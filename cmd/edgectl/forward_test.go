package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForwardRules: what the command line and the configuration say, and what is refused with the remedy.
func TestForwardRules(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "edged.toml")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("[[link]]\nname = \"eth1\"\n[[forward]]\nlisten = \"127.0.0.1:6379\"\npeer = \"b\"\nservice = " +
		"\"redis\"\n[[forward]]\nservice = \"web\"\ntarget = \"/run/web.sock\"\nconns = 9\n")
	for _, c := range []struct {
		cmd  forwardCmd
		want string // the rules, or a part of the error
	}{
		{forwardCmd{Rule: []string{":80", "b", "web"}}, ":80 -> b/web"},
		{forwardCmd{Rule: []string{"web", ":80"}, Serve: true}, "web -> :80"},
		{forwardCmd{Config: good}, "127.0.0.1:6379 -> b/redis web -> /run/web.sock"},
		{forwardCmd{Config: good, Rule: []string{"x", ":80"}, Serve: true},
			"127.0.0.1:6379 -> b/redis web -> /run/web.sock x -> :80"},
		{forwardCmd{}, "say LISTEN PEER SERVICE"},
		{forwardCmd{Rule: []string{":80", "web"}}, "say LISTEN PEER SERVICE"},
		{forwardCmd{Rule: []string{"web", ":80", "b"}, Serve: true}, "say LISTEN PEER SERVICE"},
		{forwardCmd{Config: write("[[link]]\nname = \"eth1\"\n")}, "has no [[forward]]"},
		{forwardCmd{Config: write("[[forward]]\nport = 80\n")}, "unknown key"},
		{forwardCmd{Config: "/nonexistent"}, "no such file"},
	} {
		rules, err := c.cmd.rules()
		var got []string
		for i := range rules {
			got = append(got, rules[i].String())
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if err == nil && text != c.want || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %s; want %s", c.cmd, text, c.want)
		}
	}
}
