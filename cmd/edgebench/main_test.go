package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/cli/clitest"
	"multiedge/bench/report"
)

// memlock is set in the environment of processes that run with a limit of 8 MiB on pinned memory.
const memlock = "EDGEBENCH_TEST_MEMLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(memlock) != "" {
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 8 << 20, Max: 8 << 20})
	}
	clitest.Main(m.Run, run)
}

// edgebench returns the command with its arguments, and what it writes.
var edgebench = clitest.Command

func TestLabRunWritesResultsAndPlotDrawsThem(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "deep", "r.json")
	cmd, stdout, stderr := edgebench("ping-pong", "--lab", "--lab-links", "2", "-s", "8,4k", "-n", "50", "--integrity",
		"--region", "1m", "--format", "jsonl", "-o", file, "-o", filepath.Join(dir, "r.csv"))
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	f, err := report.ReadFile(file)
	must(t, err)
	lines, err := report.Parse(stdout.Bytes())
	if err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	if len(f.Results) != 2 || len(lines.Results) != 2 || f.Lab == nil || f.Lab.Links != 2 ||
		f.Command[1] != "ping-pong" {
		t.Errorf("%+v", f)
	}
	for _, r := range f.Results {
		if r.Latency.Count != 50 || r.IntegrityErrors != 0 || !r.IntegrityChecked ||
			r.LatencyKind != report.LatencyHalfRTT {
			t.Errorf("%+v", r)
		}
	}
	if strings.Contains(stderr.String(), "\r") {
		t.Errorf("progress on something that is no terminal: %q", stderr)
	}
	cmd, stdout, stderr = edgebench("plot", file, "-o", filepath.Join(dir, "out"))
	if err := cmd.Run(); err != nil {
		t.Fatalf("plot: %v: %s", err, stderr)
	}
	for _, name := range []string{"index.html", "latency.svg", "latency.png", "throughput.svg"} {
		if info, err := os.Stat(filepath.Join(dir, "out", name)); err != nil || info.Size() < 1000 ||
			!strings.Contains(stdout.String(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The comparisons that build several labs draw their figures and print their tables.
func TestSweeps(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, figure, text string }{
		{"polling -s 64 -D 0.02 --region 1m --names block,busy", "polling", "busy"},
		{"links -s 64k -D 0.05 --region 1m --rounds 1 --counts 1,2 --lab-rates 200mbit", "links", "of nominal"},
		{"shards -D 0.1 --region 8m --rounds 1 --conns 2 --setups 1+1,2", "shards", "server's shards"},
		{"compare -s 64k -D 0.03 --region 1m --rounds 1 --only tcp,tls --edge plain,udp-stream-encrypted,udp-heap " +
			"--tcp-cc reno,cubic --tcp-cores pinned,free --offloads off",
			"compare-one-way-64K-mtu9000", "edge udp stream encrypted / tcp cubic free"},
		{"compare read -s 64k -D 0.03 --region 1m --rounds 1 --only tcp --tcp-cc cubic --lab-router --lab-family 6",
			"compare-read-64K-mtu9000", "edge write encrypted / tcp cubic"},
		{"one-way --lab -s 8 -D 0.02 --region 1m --conns 1,30 --integrity", "connections", "conns"},
		{"zero-copy -s 512k -D 0.03 --region 4m --runs 4k,256k --integrity", "zero-copy", "pinmap worst"},
	} {
		out := filepath.Join(dir, c.figure) + "/"
		page := out + "index.html"
		cmd, stdout, stderr := edgebench(append(strings.Fields(c.args), "-o", out)...)
		if err := cmd.Run(); err != nil {
			t.Fatalf("edgebench %s: %v: %s", c.args, err, stderr)
		}
		html, err := os.ReadFile(page)
		if err != nil || !bytes.Contains(html, []byte(`<section id="`+c.figure+`">`)) {
			t.Errorf("edgebench %s: no figure %s: %v", c.args, c.figure, err)
		}
		command, _, _ := strings.Cut(c.args, " ")
		if _, err := report.ReadFile(out + command + ".json"); err != nil {
			t.Error(err)
		}
		if !strings.Contains(stdout.String(), c.text) {
			t.Errorf("edgebench %s: no %q in:\n%s", c.args, c.text, stdout)
		}
	}
}

// mistakes are what a person may get wrong.
var mistakes = []clitest.Mistake{
	{"one-way", 1, "--lab"},
	{"one-way peer --lab", 1, "leave out"},
	{"one-way --lab --format xml", 2, "perftest"},
	{"one-way --lab -s big", 2, "64k"},
	{"one-way --lab -m 5", 2, "MIN:MAX"},
	{"one-way --lab -s 8 --pieces 3", 1, "3 pieces of 8 bytes"},
	{"one-way --lab -D never", 2, "seconds"},
	{"one-way --lab --lab-rates fast", 1, "rate"},
	{"one-way --lab --lab-links 65", 1, "64"},
	{"one-way --lab --poll sometimes", 2, "adaptive"},
	{"one-way --lab --scheduler best", 1, "wsrr"},
	{"one-way --embedded peer", 1, "--link"},
	{"one-way peer --socket /nowhere/edged.sock", 1, "edged"},
	{"one-way peer --checksum full", 1, "configuration"},
	{"one-way peer --security plaintext", 1, "configuration"},
	{"one-way --lab --checksum full", 1, "--security plaintext"},
	{"one-way --embedded --link eth1 peer", 1, "--peers-file"},
	{"one-way peer --lab-loss 0.1", 2, "add --lab"},
	{"one-way peer --no-lab-pin", 2, "add --lab"},
	{"one-way --lab --socket /nowhere/edged.sock", 2, "--socket is of this host"},
	{"one-way --lab --embedded --link eth1", 2, "--link is of this host"},
	{"one-way peer --link eth1", 2, "--embedded"},
	{"server --name beta", 2, "--embedded"},
	{"one-way --lab --security none", 2, "plaintext"},
	{"compare --security plaintext", 1, "--edge"},
	{"ping-pong --lab -b", 2, "unknown flag"},
	{"compare -n 5", 1, "-D"},
	{"one-way --lab --conns 9000", 1, "8000"},
	{"ping-pong --lab --conns 2", 2, "unknown flag"},
	{"polling --poll busy", 1, "--names"},
	{"links --lab-links 2", 1, "--counts"},
	{"shards --setups 9", 2, "1+1"},
	{"shards --setups 1+x", 2, "1+1"},
	{"shards --conns 0", 1, "--conns"},
	{"shards -n 5", 1, "-D"},
	{"shards --lab-shards 2", 1, "--setups"},
	{"one-way --lab --lab-shards 9", 1, "1..8"},
	{"links --lab-rates 1gbit,2gbit", 1, "same rate"},
	{"compare --only carrier-pigeon", 1, "libfabric"},
	{"compare --tcp-cc pigeon --only tcp --edge plain -D 0.01 --region 1m --rounds 1", 1, "modprobe tcp_pigeon"},
	{"compare --tcp-cores some", 2, "pinned"},
	{"compare --offloads some", 2, "off"},
	{"compare --edge fast", 1, "crc32c"},
	{"compare --lab-router --edge udp-encrypted", 1, "does not cross a router"},
	{"plot", 2, "files"},
	{"plot /proc/version", 1, "--format json"},
	{"dance", 2, "--help"},
	{"one-way --lab -n 0", 2, "1 at least"},
	{"one-way --lab -n=-5", 2, "1 at least"},
	{"one-way --lab -n 1.5", 2, "whole number"},
	{"one-way --lab -t 0", 2, "1 at least"},
	{"one-way --lab -t=-1", 2, "1 at least"},
	{"one-way --lab --conns 0", 2, "1 at least"},
	{"one-way --lab --conns 8,0", 2, "1 at least"},
	{"rate --lab --batch 0", 2, "1 at least"},
	{"rate --lab --batch=-32", 2, "1 at least"},
	{"server -t 0", 2, "1 at least"},
	{"compare --rounds 0", 2, "1 at least"},
	{"one-way --lab --lab-hosts 0", 2, "1 at least"},
	{"one-way --lab --lab-mtu 0", 2, "1 at least"},
	{"one-way --lab --lab-shards 0", 2, "1 at least"},
	{"one-way --lab -n 5 -D 1", 2, "leave out -D for the one, -n for the other"},
	{"one-way --lab -a -s 8", 2, "leave out -s"},
	{"one-way --lab -a -m 8:64", 2, "leave out -m"},
	{"one-way --lab -s 8 -m 8:64", 2, "leave one of them out"},
	{"one-way --lab --region 100000g", 2, "too large for this machine's memory of"},
	{"one-way --lab --region 9999999999g", 2, "too large for any machine's memory"},
	{"one-way --lab --region 0", 2, "more than nothing"},
	{"one-way --lab --region lots", 2, "64k"},
	{"one-way --lab -s 100000g", 2, "too large"},
	{"one-way --lab -m 64:100000g", 2, "too large"},
	{"one-way --lab -m 64:big", 2, "64k"},
	{"server --region 100000g", 2, "too large"},
	{"one-way --lab -D 600 -o /proc/version/page.html", 1, "/proc/version"},
	{"one-way --lab -D 600 -o /proc/page.html", 1, "/proc/page.html"},
}

func TestMistakesAreExplained(t *testing.T) { clitest.Explained(t, "edgebench", mistakes) }

// What is done unless told otherwise can be read.
func TestHelpShowsDefaults(t *testing.T) {
	for args, want := range map[string][]string{
		"one-way": {
			"given (default: 64k; ping-pong and rate 8).",
			"(default: 128, read 64, rate 512; fewer of large messages; ping-pong always 1).",
			"at once (default: 1, rate 32).",
			"links (default: 9000).", "benchmark (default: 2).", "each daemon (default: 1).",
			"busy (default: adaptive;", "(default: 1). Several",
		},
		"schedulers": {"given (default: 4k to 1m)."}, "polling": {"given (default: 4k to 1m; ping-pong also 8)."},
		"profile":   {"given (default: 1m; ping-pong and rate 8)."},
		"zero-copy": {"given (default: 4k to 4m; ping-pong 8 to 1m)."}, "compare": {"turns (default: 5)."},
	} {
		cmd, stdout, stderr := edgebench(args, "--help")
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		help := strings.Join(strings.Fields(stdout.String()), " ")
		for _, text := range want {
			if !strings.Contains(help, text) {
				t.Errorf("edgebench %s --help does not say %q:\n%s", args, text, stdout)
			}
		}
	}
}

func TestVersionFlag(t *testing.T) {
	cmd, stdout, stderr := edgebench("--version")
	if err := cmd.Run(); err != nil || stdout.String() != version+"\n" {
		t.Errorf("%v, %q: %s", err, stdout, stderr)
	}
}

// A command that measures nothing leaves results of earlier ones alone, and no empty files.
func TestNothingMeasuredChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	old := []string{"old.json", "old.csv", "old.html"}
	args := strings.Fields("one-way peer --socket /nowhere/edged.sock -o " + file("new.json") + " -o " +
		file("new.html"))
	for _, name := range old {
		must(t, os.WriteFile(file(name), []byte("of "+name), 0o600))
		args = append(args, "-o", file(name))
	}
	cmd, _, _ := edgebench(args...)
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("ended with %v", err)
	}
	for _, name := range old {
		if b, err := os.ReadFile(file(name)); string(b) != "of "+name {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) != len(old) {
		t.Errorf("%v, %v; want %v", there, err, old)
	}
}

func TestInterruptRemovesEverything(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) { interruptRemovesEverything(t, s) })
	}
}

func interruptRemovesEverything(t *testing.T, with syscall.Signal) {
	caught := make(chan os.Signal, 1) // so that nohup, which may be around this test, is not around its child
	signal.Notify(caught, with)
	defer signal.Stop(caught)
	tmp := t.TempDir()
	cmd, stdout, stderr := edgebench("one-way", "--lab", "-D", "600", "--region", "1m", "--format", "json")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	waitFor(t, "a worker to run", func() bool { return len(children(t, commandLine("lab-process"), tmp)) == 2 })
	must(t, cmd.Process.Signal(with))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stderr.String(),
		"interrupted; everything") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if left := children(t, commandLine("lab-"), tmp); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "edgebench-*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	var doc report.File
	if err := json.Unmarshal(stdout.Bytes(), &doc); err != nil {
		t.Errorf("the JSON was not ended: %v in %q", err, stdout)
	}
}

// commandLine is a text that command lines of wanted processes contain.
type commandLine string

// children returns the processes whose command line contains text and whose environment names tmp.
func children(t *testing.T, text commandLine, tmp string) (pids []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline") // it may have ended
		env, _ := os.ReadFile(d + "/environ")
		if bytes.Contains(line, []byte(text)) && bytes.Contains(env, []byte("TMPDIR="+tmp)) {
			pids = append(pids, filepath.Base(d))
		}
	}
	return pids
}

func waitFor(t *testing.T, what string, there func() bool) {
	t.Helper()
	for give := time.Now().Add(20 * time.Second); !there(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// An ordinary user with the usual limit on pinned memory gets results, and is told what was fitted.
func TestOrdinaryUser(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	self := filepath.Join(dir, "edgebench")
	copyFile(t, os.Args[0], self)
	cmd, stdout, stderr := edgebench("two-way", "--lab", "-m", "64k:4m", "-n", "10", "--integrity", "--format", "json")
	cmd.Path, cmd.Dir = self, "/"
	cmd.Env = append(cmd.Env, memlock+"=1", "TMPDIR=/tmp")
	if os.Geteuid() == 0 && os.Getenv("MULTIEDGE_LAB_USERNS") == "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	f, err := report.Parse(stdout.Bytes())
	must(t, err)
	last := f.Results[len(f.Results)-1]
	if last.IntegrityErrors > 0 || last.MessageBytes < 1<<20 || last.MessageBytes > 2<<20 || last.RegionBytes > 4<<20 {
		t.Errorf("the largest message was %d bytes in regions of %d, %d errors", last.MessageBytes, last.RegionBytes,
			last.IntegrityErrors)
	}
	for _, want := range []string{"ulimit -l", "left out"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("nothing is said about %q: %s", want, stderr)
		}
	}
	if !f.Lab.Unprivileged {
		t.Error("the lab was built with privileges")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	must(t, out.Close())
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
