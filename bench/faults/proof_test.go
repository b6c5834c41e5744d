package faults

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// carried runs a scenario on real daemons. Work is a client that writes while spoil runs.
func carried(t *testing.T, spoil func(tr *Trial, c *agent)) *Row {
	t.Helper()
	return runOne(t.Context(), &Scenario{Name: "proof", Group: Host, Run: func(tr *Trial) {
		c := tr.pair(MixSmall, 2, 4)
		tr.injected("proofs", 1)
		spoil(tr, c)
	}}, Options{Short: true, Seed: 3})
}

// memoryOf changes the memory of a server's first connection behind the harness's back, as a broken transport would.
// It writes only the bytes that change differs in: writes of the client may be under way to all others.
func memoryOf(t *testing.T, server *agent, seed uint64, change func(b []byte)) {
	t.Helper()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", server.proc.Pid()))
	must(t, err)
	defer maps.Close()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", server.proc.Pid()), os.O_RDWR, 0)
	must(t, err)
	defer mem.Close()
	_, size, err := divide(MixSmall, 4)
	must(t, err)
	want, b := newOracle(seed, size).bytes, make([]byte, size)
	for sc := bufio.NewScanner(maps); sc.Scan(); {
		var from, to int64
		var mode string
		n, _ := fmt.Sscanf(sc.Text(), "%x-%x %s", &from, &to, &mode)
		if n != 3 || mode != "rw-s" || to-from < int64(size) {
			continue
		}
		if _, err := mem.ReadAt(b, from); err == nil && string(b[:guard]) == string(want[:guard]) {
			was := slices.Clone(b)
			change(b)
			for i := range b {
				if b[i] != was[i] {
					_, err = mem.WriteAt(b[i:i+1], from+int64(i))
					must(t, err)
				}
			}
			return
		}
	}
	t.Fatal("the server's memory was not found")
}

// over ends the work of a client, and waits until the server has taken checksums of the memory.
func over(tr *Trial, c *agent) {
	tr.drain(c)
	if _, ok := tr.event(patience, func() bool { return len(tr.servers[0].endings()) == c.job.Conns }); !ok {
		kit.Fail("the server does not see the end of its connections")
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever a broken transport may do to memory and processes, the harness reports; and nothing else.
func TestHarnessReports(t *testing.T) {
	slot := guard + gap // the first
	for _, c := range []struct {
		name, marks string
		reason      string // a part of a reason; empty: none
		spoil       func(tr *Trial, c *agent)
	}{
		{"nothing", "12345", "", func(*Trial, *agent) {}},
		{"a byte beside what may be written", "x2345", "1 wrong bytes, 1 of them canaries", func(tr *Trial, _ *agent) {
			memoryOf(t, tr.servers[0], 3, func(b []byte) { b[guard+1] ^= 1 })
		}},
		{"a wrong byte, after the connection's end", "xx345", "1 wrong bytes, 0 of them canaries",
			func(tr *Trial, c *agent) {
				over(tr, c)
				memoryOf(t, tr.servers[0], 3, func(b []byte) { b[slot] ^= 1 })
			}},
		{"writes that are lost", "xx345", "wrong bytes", func(tr *Trial, c *agent) {
			over(tr, c)
			memoryOf(t, tr.servers[0], 3, func(b []byte) {
				copy(b[slot:slot+gap], newOracle(3, len(b)).bytes[slot:])
			})
		}},
		{"a client that stays", "12x45", "1 clients, 0 at the start", func(tr *Trial, _ *agent) {
			dev, err := edge.Open(context.Background(), edge.Config{Socket: tr.cluster.Socket(1)})
			kit.Check(err)
			t.Cleanup(func() { dev.Close() })
		}},
		{"a daemon that dies", "1234x", "the daemon of host 1 is gone", func(tr *Trial, _ *agent) {
			tr.cluster.Daemon(1).Kill()
			kit.Fail("the scenario cannot go on")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := carried(t, c.spoil)
			why := strings.Join(r.Reasons(), "; ")
			if (r.Verdict == Pass) != (c.reason == "") || !strings.Contains(why, c.reason) || r.marks() != c.marks {
				t.Errorf("%s, %s: %s", r.Verdict, r.marks(), why)
			}
		})
	}
}

// A run that tested nothing does not pass: none was injected, or nothing was compared.
func TestNothingTestedFails(t *testing.T) {
	for name, c := range map[string]struct {
		marks string
		run   func(tr *Trial)
	}{
		"nothing injected": {"123x5", func(tr *Trial) { tr.pair(MixSmall, 1, 1) }},
		"nothing compared": {"x2345", func(tr *Trial) { tr.injected("proofs", 1) }},
	} {
		r := runOne(t.Context(), &Scenario{Name: name, Group: Host, Run: c.run}, Options{Short: true, Seed: 3})
		if r.Verdict != Fail || r.marks() != c.marks {
			t.Errorf("%s: %s, %s: %v", name, r.Verdict, r.marks(), r.Reasons())
		}
	}
}

// A scenario that cannot go on says why, fails, and leaves nothing behind; the wires' faults were really injected.
func TestScenarioThatEndsItself(t *testing.T) {
	var lost lab.Counters
	ended := false
	r := carried(t, func(tr *Trial, _ *agent) {
		tr.atEnd(func() { ended = true })
		tr.setFaults(lab.Faults{Loss: 0.2})
		tr.event(patience, func() bool { lost = tr.labCounters(); return lost.Lost > 0 })
		kit.Fail("no way to go on")
	})
	if r.Verdict != Fail || r.Error != "no way to go on" || !ended || lost.Lost == 0 {
		t.Errorf("%s, %q, ended %v, %d frames lost", r.Verdict, r.Error, ended, lost.Lost)
	}
}
