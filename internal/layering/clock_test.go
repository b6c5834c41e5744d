package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rule of the wall clock: nothing the transport does may depend on it, so that it can be moved by an hour and
// nobody notices. Timers (Sleep, After, NewTimer, NewTicker) run on the monotonic clock, and so does what is computed
// from two values of time.Now, as long as nothing strips their monotonic reading. So of package time, durations and
// timers are free, whoever names anything else is listed here with why it is right, and what strips the reading
// (stripping) is called by those alone who want the wall time.

// freeTime is what everybody may name of package time.
var freeTime = strings.Fields("Duration Nanosecond Microsecond Millisecond Second Minute Hour Sleep After AfterFunc " +
	"NewTimer NewTicker Timer Ticker")

// stripping are methods of time.Time that lose the monotonic reading.
var stripping = strings.Fields("Unix UnixMilli UnixMicro UnixNano UTC AddDate")

// clockUses are the other names, by file, and why they are right.
var clockUses = map[string]struct{ names, why string }{
	"internal/mono/mono.go": {"Now Since",
		"the transport's clock: the time since a reading of this process, by the monotonic clock"},
	"internal/shard/alarm.go":    {"TimerfdCreate", "CLOCK_MONOTONIC, set to intervals"},
	"internal/shard/ringer.go":   {"ClockGettime", "CLOCK_THREAD_CPUTIME_ID, for differences"},
	"internal/daemon/daemon.go":  {"Time", "the type of a timer's channel"},
	"internal/daemon/keeper.go":  {"Time", "the same"},
	"internal/inspect/clock.go":  {"ClockGettime", "CLOCK_MONOTONIC, for those who compare two daemons of a host"},
	"internal/daemon/watch.go":   {"Now Time", "people read the wall time of events; nothing else does"},
	"internal/daemon/reload.go":  {"Now", "the same of the latest reload"},
	"internal/inspect/status.go": {"Time", "the same, kept"},
	"internal/inspect/doctor.go": {"DateTime", "the same, as text"},
	"internal/daemon/control.go": {"Now", "an argument of pace.go"},
	"internal/config/load.go":    {"ParseDuration", "a number with a unit"},
	"internal/daemon/pace.go": {"Now Time Until",
		"requests are spaced by readings of this process; the zero Time, which has none, is only asked whether it is " +
			"past"},
	"internal/ipc/conn.go": {"Now", "a deadline of a socket: package net waits for time.Until of it"},
	"linkdrv/refusals.go":  {"Now Time", "how long a device refuses a frame, by readings of this process"},
	"regmem/room_linux.go": {"Now Since Time",
		"how long ago this process looked at what is free, by readings of its own"},
	"internal/secure/handshake.go": {"Unix",
		"dates that a certificate must have and nobody looks at (TestWallClocksDiffer)"},
	"edge/reattach.go": {"Now Since",
		"how long an attachment lasted and attempts go on, by readings of this process"},
	"edge/listener.go": {"Until",
		"what is left of a context's deadline; context.WithTimeout makes it from a reading of this process"},
	"edge/stream/deadline.go": {"Time Until",
		"net.Conn has deadlines as time.Time; what is left of one, made from a reading of this process, counts on " +
			"the monotonic clock"},
	"cmd/edgectl/monitor.go": {"StampMilli", "the daemon's times of events, for people"},
	"cmd/edgectl/show.go":    {"DateTime", "its time of the latest reload, for people"},
	"cmd/edgectl/main.go":    {"ParseDuration", "reads a flag"},
	"cmd/edgectl/trace.go": {"Now Time",
		"people read the wall time of frames: it is read once and the daemon's clock counts on from there"},
	"cmd/edged/supervise.go": {"Time", "the type of a ticker's channel"},
}

// wallCalls are system calls and options that read the wall clock.
var wallCalls = strings.Fields("Time Gettimeofday ClockGettime CLOCK_REALTIME CLOCK_REALTIME_COARSE CLOCK_TAI " +
	"TimerfdCreate SO_TIMESTAMP SO_TIMESTAMPNS SO_TIMESTAMPING")

// clocked are the packages whose code runs in daemons and applications.
var clocked = []string{"cmd/edged", "cmd/edgectl", "edge", "flowctl", "internal", "linkdrv", "regmem", "remap", "sched"}

func TestNothingDependsOnTheWallClock(t *testing.T) {
	used := map[string][]string{} // names beyond the free ones, by file
	files := 0
	for _, dir := range clocked {
		root := filepath.Join("..", "..")
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			switch {
			case err != nil:
				return err
			case name == "internal/lab":
				return filepath.SkipDir // hosts for tests and benchmarks
			case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			files++
			src, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, use := range clockNames(src) {
				if !slices.Contains(used[name], use) {
					used[name] = append(used[name], use)
				}
				if !slices.Contains(strings.Fields(clockUses[name].names), use) {
					t.Errorf("%s uses %s; use internal/mono, or add it to clockUses with why it does not depend on "+
						"the wall clock", name, use)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Fatalf("only %d files looked at; the test does not see the project", files)
	}
	for name, entry := range clockUses {
		for _, use := range strings.Fields(entry.names) {
			if !slices.Contains(used[name], use) {
				t.Errorf("%s does not use %s any more; take it out of clockUses", name, use)
			}
		}
	}
}

// clockNames lists what a file takes from package time beyond what is free, the system calls of wallCalls, and the
// calls of methods that are in stripping.
func clockNames(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(stripping, sel.Sel.Name) &&
				!isPackage(file, sel.X, "time") {
				names = append(names, sel.Sel.Name)
			}
		}
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := sel.Sel.Name
		if isPackage(file, sel.X, "time") && !slices.Contains(freeTime, name) ||
			(isPackage(file, sel.X, "golang.org/x/sys/unix") || isPackage(file, sel.X, "syscall")) &&
				slices.Contains(wallCalls, name) {
			names = append(names, name)
		}
		return true
	})
	return names
}

// isPackage reports whether x is the name by which file imports a package.
func isPackage(file *ast.File, x ast.Expr, path string) bool {
	id, ok := x.(*ast.Ident)
	if !ok {
		return false
	}
	for _, spec := range file.Imports {
		if spec.Path.Value != `"`+path+`"` {
			continue
		}
		if spec.Name != nil {
			return id.Name == spec.Name.Name
		}
		return id.Name == path[strings.LastIndexByte(path, '/')+1:]
	}
	return false
}

func TestClockNames(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"time.Sleep(time.Second)", ""},
		{"time.Now()", "Now"},
		{"x := time.Now; x()", "Now"},
		{"var t time.Time; t.UnixNano()", "Time UnixNano"},
		{"s.since.Unix()", "Unix"},
		{"unix.ClockGettime(0, nil)", "ClockGettime"},
		{"clock.Now()", "Now"},
		{"other.Now()", ""},
	} {
		imports := "import (\n\"time\"\n\"golang.org/x/sys/unix\"\n)\n"
		if strings.Contains(c.body, "clock.") {
			imports = "import clock \"time\"\n"
		}
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+imports+"func f() { "+c.body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(clockNames(file), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
}
