package engine_test

import (
	"bytes"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/trace"
)

// TestScripts plays the scenarios of testdata/scripts: two engines in memory, and every frame that they exchange as the
// expected output. After a change of the protocol, regenerate the outputs and review the diff:
//
//	go test ./internal/engine -run TestScripts -rewrite
//
// script_help_test.go and script_verbs_test.go list the commands.
func TestScripts(t *testing.T) {
	if lazyAll && flag.Lookup("rewrite").Value.String() == "true" {
		t.Fatal("regenerate the scripts without LAZYALL: payloads are placed later with it")
	}
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			if s.r != nil {
				s.r.t = t
			}
			do, ok := scriptCommands[d.Cmd]
			if !ok {
				d.Fatalf(t, "no such command: %q", d.Cmd)
			}
			if d.Cmd != "new" && s.r == nil {
				d.Fatalf(t, "the first command must be new")
			}
			s.out.Reset()
			do(s)
			if s.out.Len() == 0 {
				return "ok"
			}
			return s.out.String()
		})
	})
}

// script is a scenario that is being played.
type script struct {
	t        *testing.T
	d        *datadriven.TestData
	r        *rig
	o        rigOptions
	out      strings.Builder
	conn     [2]engine.ConnID
	mem      [2][]byte // exported
	want     [2][]byte // what mem must be in the end
	key      [2]uint64
	number   [2]uint32 // of the adverts
	token    uint64
	reads    []pendingRead
	composed map[int]composing // by operation
	writes   int               // into their memory
	seen     [2]int            // events printed
	rules    []*rule
	held     []heldFrame
	conns    map[string]string // connection numbers as the trace prints them
	began    mono.Time
	verbs    scriptVerbs
}

// pendingRead is a read whose data verify looks at.
type pendingRead struct {
	node, at int
	local    []byte
}

// rule is what happens to frames that match: "drop", "hold", "double", "corrupt".
type rule struct {
	what       string
	from, link int
	with       string
	skip, left int
	over       int // only frames with more bytes
}

// heldFrame waits for the command release.
type heldFrame struct {
	to int
	f  flight
}

func (r *rule) matches(from int, f *flight, text string) bool {
	if r.left == 0 || r.from != from || r.link >= 0 && r.link != f.link || len(f.b) <= r.over || !strings.Contains(text,
		r.with) {
		return false
	}
	if r.skip > 0 {
		r.skip--
		return false
	}
	r.left--
	return true
}

// num is an argument of the command, or its default.
func (s *script) num(name string, or int) int {
	v := or
	if s.d.HasArg(name) {
		s.d.ScanArgs(s.t, name, &v)
	}
	return v
}

func (s *script) text(name string) string {
	var v string
	if s.d.HasArg(name) {
		s.d.ScanArgs(s.t, name, &v)
	}
	return v
}

func (s *script) span(name string, or time.Duration) time.Duration {
	v := s.text(name)
	if v == "" {
		return or
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		s.d.Fatalf(s.t, "%s: %v", name, err)
	}
	return d
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

var (
	unstable = regexp.MustCompile(` key 0x[0-9a-f]+|(probe|echo) 0x[0-9a-f]+|as \d+|session \d+`)
	connOf   = regexp.MustCompile(`conn (\d+)`)
)

// describe is a frame in a line, without what is random: keys, nonces, numbers of sessions and connections.
func (s *script) describe(from int, f *flight) string {
	text := trace.Describe(f.b, len(f.b)).Text
	_, text, _ = strings.Cut(text, " > ")
	_, text, _ = strings.Cut(text, " ")
	text = unstable.ReplaceAllStringFunc(text, func(m string) string {
		word, _, _ := strings.Cut(strings.TrimSpace(m), " ")
		if word == "probe" || word == "echo" {
			return word
		}
		return ""
	})
	text = connOf.ReplaceAllStringFunc(text, func(m string) string {
		if s.conns[m] == "" {
			s.conns[m] = fmt.Sprintf("conn %c", 'A'+len(s.conns))
		}
		return s.conns[m]
	})
	return fmt.Sprintf("%d>%d %s", from, 1-from, strings.Join(strings.Fields(text), " "))
}

// pass prints a frame and does to it what the rules say.
func (s *script) pass(show func(string) bool) func(from int, f *flight) bool {
	return func(from int, f *flight) bool {
		text, fate := s.describe(from, f), ""
		for _, r := range s.rules {
			if r.matches(from, f, text) {
				fate = r.what
				break
			}
		}
		if show(text) {
			mark := ""
			if fate != "" {
				mark = "  <- " + fate
			}
			s.printf("%s %s%s", s.at(), text, mark)
		}
		switch fate {
		case "drop":
			return false
		case "hold":
			s.held = append(s.held, heldFrame{1 - from, *f})
			return false
		case "double":
			s.r.give(1-from, *f)
		case "corrupt":
			f.b = bytes.Clone(f.b)
			f.b[len(f.b)-1] ^= 1
		}
		return true
	}
}

func (s *script) at() string {
	return fmt.Sprintf("%8v", s.r.now.Sub(s.began).Round(100*time.Nanosecond))
}

// events prints what happened since the last look.
func (s *script) events() {
	for i, n := range s.r.n {
		for ; s.seen[i] < len(n.events); s.seen[i]++ {
			if s.verbs.event(s, i, &n.events[s.seen[i]]) {
				continue
			}
			switch ev := &n.events[s.seen[i]]; ev.Kind {
			case engine.EvComplete:
				found := ""
				if v, ok := n.values[ev.Token]; ok {
					found = fmt.Sprint(", found ", v)
				}
				s.printf("%s    node %d: operation %d: %v%s", s.at(), i, ev.Token, ev.Status, found)
			case engine.EvNotify:
				for {
					note, ok := n.e.TakeNotify(ev.Conn)
					if !ok {
						break
					}
					s.printf("%s    node %d: notification %d, %d bytes", s.at(), i, note.Imm, note.Len)
				}
			case engine.EvClosed:
				s.printf("%s    node %d: connection closed: %v %s", s.at(), i, ev.Status, ev.Text)
			case engine.EvPath:
				s.printf("%s    node %d: path %d: %s", s.at(), i, ev.Link, ev.Text)
			case engine.EvPeerUp, engine.EvPeerDown:
				s.printf("%s    node %d: peer %s: %s %v", s.at(), i, map[bool]string{true: "up",
					false: "down"}[ev.Kind == engine.EvPeerUp], ev.PeerName, ev.Status)
			case engine.EvIncoming:
				s.printf("%s    node %d: request for %q", s.at(), i, ev.Service)
				s.conn[i] = ev.Conn
				if !s.verbs.heldBack {
					s.accept()
				}
			case engine.EvConnected:
				s.printf("%s    node %d: connected", s.at(), i)
			case engine.EvAdvert:
				s.printf("%s    node %d: export %q, %d bytes", s.at(), i, ev.Advert.Name, ev.Advert.Size)
			case engine.EvWithdrawn:
				s.printf("%s    node %d: export withdrawn", s.at(), i)
			}
		}
	}
}
