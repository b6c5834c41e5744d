//go:build ctest

package drive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

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
	go exportToAll(ctx, l, r, "line")
	for _, args := range [][]string{
		{program(t, "../plain/put"), "b", "board", "line", "hello from C"},
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
	if !strings.HasPrefix(string(r.Bytes()), "hello from C") {
		t.Errorf("the memory has %q", r.Bytes()[:16])
	}
	if row := string(r.Bytes()[15*64:]); !strings.HasPrefix(row, "15 times 15 is 225\x00") {
		t.Errorf("the last row of the table is %q", row[:64])
	}
}

// The server of the README is told of what put writes, and sees no more than was written.
func TestPutFitsTheReadme(t *testing.T) {
	a, b := hosts(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	readme, err := os.ReadFile("../../../README.md")
	must(t, err)
	server := `edge.Listen(ctx, "store")
c, err := l.Accept(ctx)
r, err := c.Device().Register(1 << 20)
_, err = r.Export(c, "table", edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
n, err := c.WaitNotify(ctx)`
	if bare := regexp.MustCompile(` +//.*`).ReplaceAllString(string(readme), ""); !strings.Contains(bare, server) {
		t.Fatal("the server of the README is another one: follow it here")
	}
	l, err := b.open().Listen(ctx, "store")
	must(t, err)
	said := make(chan string, 1)
	go func() {
		said <- func() string {
			c, err := l.Accept(ctx)
			if err != nil {
				return err.Error()
			}
			r, err := c.Device().Register(1 << 20)
			if err == nil {
				_, err = r.Export(c, "table", edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
			}
			if err != nil {
				return err.Error()
			}
			n, err := c.WaitNotify(ctx)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintln(n.Imm, string(r.Bytes()[:n.Len]))
		}()
	}()
	cmd := exec.CommandContext(ctx, program(t, "../plain/put"), "b", "store", "table", "hello from C")
	cmd.Env = append(os.Environ(), "EDGE_SOCKET="+a.cfg.Socket)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("put: %v %s", err, out)
	}
	if text := <-said; text != "7 hello from C\n" {
		t.Errorf("the server says %q", text)
	}
}

// Memory that nobody exports is one message, the same from C and from Go.
func TestMissingExportIsSaidAlike(t *testing.T) {
	a, b := hosts(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	l, err := b.open().Listen(ctx, "store")
	must(t, err)
	go func() {
		for {
			if _, err := l.Accept(ctx); err != nil {
				return
			}
		}
	}()
	cmd := exec.CommandContext(ctx, program(t, "../plain/put"), "b", "store", "tabel", "hello from C")
	cmd.Env = append(os.Environ(), "EDGE_SOCKET="+a.cfg.Socket)
	out, _ := cmd.CombinedOutput()
	c, err := a.open().Dial(ctx, "b", "store")
	must(t, err)
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	_, err = c.Import(short, "tabel")
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || string(out) != strings.Replace(err.Error(), "edge:",
		"put:", 1)+"\n" {
		t.Errorf("C says %q, Go %v", out, err)
	}
}

// What the shared library exports is what the header declares, and has a manual page.
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
		checkPage(t, name)
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

// checkPage looks at the installed manual page of a function: it names, declares and describes it, itself or by a link.
func checkPage(t *testing.T, name string) {
	t.Helper()
	share := program(t, "../root/share/man") + "/"
	page, err := os.ReadFile(share + "man3/" + name + ".3")
	if link, ok := strings.CutPrefix(string(page), ".so "); ok && err == nil {
		page, err = os.ReadFile(share + strings.TrimSpace(link))
	}
	text := string(page)
	if err != nil || !strings.Contains(text, name+"(") || !regexp.MustCompile(`(?m)^.SH NAME\n.*\b`+name+`\b`).MatchString(
		text) || !strings.Contains(text, ".SH DESCRIPTION\n") {
		t.Errorf("man %s: %v %q", name, err, text)
	}
}

// exportToAll lets whoever dials read and write r, until ctx ends.
func exportToAll(ctx context.Context, l *edge.Listener, r *edge.Region, name string) {
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		r.Export(c, name, edge.RemoteRead|edge.RemoteWrite, 0, r.Len())
	}
}
