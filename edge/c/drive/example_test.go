//go:build ctest

package drive

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"multiedge/edge"
)

// The examples in C, built by pkg-config, and in Python: one writes what the other reads.
func TestExamples(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	d := b.open()
	l, err := d.Listen(ctx, "board")
	must(t, err)
	r, err := d.Register(4096)
	must(t, err)
	_, err = l.Share(r, "line", edge.RemoteRead|edge.RemoteWrite)
	must(t, err)
	go func() {
		for {
			if _, err := l.Accept(ctx); err != nil {
				return
			}
		}
	}()
	for _, args := range [][]string{
		{program(t, "../plain/table"), "b", "board", "line"},
		{program(t, "../plain/put"), "b", "board", "line", "hello from C"},
		{"python3", "../examples/get.py", "b", "board", "line", "13"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "EDGE_SOCKET="+a.cfg.Socket, "LIBEDGE="+program(t, "../libedge.so.1"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		if args[0] == "python3" && !strings.Contains(string(out), "hello from C") {
			t.Errorf("%v says %q", args, out)
		}
	}
	if !strings.HasPrefix(string(r.Bytes()), "hello from C\x00") {
		t.Errorf("the memory has %q", r.Bytes()[:16])
	}
	if row := string(r.Bytes()[15*64:]); !strings.HasPrefix(row, "15 times 15 is 225\x00") {
		t.Errorf("the last row of the table is %q", row[:64])
	}
}

// What the shared library exports is what the header declares.
func TestSymbols(t *testing.T) {
	out, err := exec.Command("nm", "-D", "--defined-only", program(t, "../libedge.so.1")).Output()
	must(t, err)
	header, err := os.ReadFile("../edge.h")
	must(t, err)
	seen := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		name, version, _ := strings.Cut(f[2], "@")
		if f[1] == "A" {
			continue // the version itself
		}
		seen++
		if !strings.HasPrefix(name, "edge_") || version != "@EDGE_1.0" || !strings.Contains(string(header), name+"(") {
			t.Errorf("the library exports %s", f[2])
		}
	}
	if want := strings.Count(string(header), "EDGE_API") - 2; seen != want {
		t.Errorf("%d symbols, the header declares %d", seen, want)
	}
	out, err = exec.Command("nm", "-g", "--defined-only", program(t, "../libedge.a")).Output()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && !strings.HasPrefix(f[2], "edge_") {
			t.Errorf("the static library has the global name %s, which may meet a program's", f[2])
		}
	}
	if out, err := exec.Command(program(t, "../plain/header")).CombinedOutput(); err != nil {
		t.Errorf("the header in C++: %v: %s", err, out)
	}
}
