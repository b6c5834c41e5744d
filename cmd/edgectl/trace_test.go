package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/trace"
	"multiedge/internal/wire"
)

// talk pings node a from b until the test ends, so that there are frames to see.
func talk(t *testing.T, b string) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			default:
				ctl("-s", b, "ping", "a", "-c", "1")
			}
		}
	}()
	t.Cleanup(func() { close(over); <-done })
}

func TestTrace(t *testing.T) {
	a, b := pair(t, config.Plaintext)
	talk(t, b)
	code, out, errs := ctl("-s", a, "trace", "mem", "-c", "20")
	if code != 0 || errs != "" || strings.Count(out, "\n") != 20 {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	for _, want := range []string{" mem in ", " mem out ", " > ", "data session ", "| ack path 0 "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}

	code, out, errs = ctl("-j", "-s", a, "trace", "-c", "5", "--snap", "40")
	dec := json.NewDecoder(strings.NewReader(out))
	lines := 0
	for ; code == 0; lines++ {
		var l traceLine
		if err := dec.Decode(&l); err == io.EOF {
			break
		} else if err != nil || l.Link != "mem" || l.Length == 0 || l.Text == "" ||
			time.Since(l.Time).Abs() > time.Minute || l.Direction != "in" && l.Direction != "out" {
			t.Errorf("%v: %+v", err, l)
		}
	}
	if lines != 5 {
		t.Errorf("exit %d, %d lines: %s%s", code, lines, errs, out)
	}

	if code, out, errs = ctl("-s", a, "trace", "-D", "1ms"); code != 0 {
		t.Errorf("for a millisecond: exit %d: %s%s", code, errs, out)
	}
}

func TestTraceFile(t *testing.T) {
	a, b := pair(t, config.Encrypted)
	talk(t, b)
	file := filepath.Join(t.TempDir(), "out.pcapng")
	if code, out, errs := ctl("-s", a, "trace", "-w", file, "-c", "10", "--snap", "0"); code != 0 ||
		!strings.HasPrefix(errs, "10 frames, and 0 between") {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	written, err := os.ReadFile(file)
	must(t, err)
	code, out, errs := ctl("-s", a, "trace", "-w", "-", "-c", "10")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for name, b := range map[string][]byte{"file": written, "output": []byte(out)} {
		in, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(name, err)
		}
		frames, ways := 0, map[pcapgo.NgEpbFlag]bool{}
		for {
			data, ci, about, err := in.ReadPacketDataWithOptions()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(name, err)
			}
			frames++
			ways[about.Flags.Direction] = true
			if want := trace.Describe(data, ci.Length).Text; len(about.Comments) != 1 || about.Comments[0] != want ||
				time.Since(ci.Timestamp).Abs() > time.Minute {
				t.Errorf("%s: %v %v, want %q", name, ci, about.Comments, want)
			}
		}
		link, err := in.Interface(0)
		if frames != 10 || !ways[pcapgo.NgEpbFlagDirectionInbound] || !ways[pcapgo.NgEpbFlagDirectionOutbound] ||
			err != nil || link.Name != "mem" {
			t.Errorf("%s: %d frames, directions %v, %+v %v", name, frames, ways, link, err)
		}
	}
}

// One traces at a time, and whoever ends makes room. Nonsense is refused.
func TestTraceTroubles(t *testing.T) {
	a, b := pair(t, config.Encrypted)
	conn, err := ipc.Dial(context.Background(), a)
	must(t, err)
	first, err := (&traceCmd{}).request(conn)
	must(t, err)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"trace"}, "traces already"},
		{[]string{"trace", "eth9"}, `there is no link "eth9"`},
		{[]string{"trace", "--snap=-1"}, "--snap -1"},
		{[]string{"trace", "--duration=-1s"}, "--duration -1s"},
		{[]string{"trace", "-j", "-w", "-"}, "choose one"},
		{[]string{"trace", "--lookups"}, "add -w FILE"},
		{[]string{"trace", "--lookups", "-w", "-"}, "add -w FILE"},
		{[]string{"trace", "--lookups", "-w", "x", "mem"}, "leave out"},
		{[]string{"trace", "--lookups", "-w", "x"}, "traces already"},
	} {
		if code, _, errs := ctl(append([]string{"-s", a}, c.args...)...); code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %q; want %q", c.args, code, errs, c.want)
		}
	}
	first.close()
	talk(t, b)
	if code, _, errs := ctl("-s", a, "trace", "-c", "1"); code != 0 {
		t.Errorf("after the first one ended: %s", errs)
	}
	if code, _, errs := ctl("-s", a, "trace", "-w", "/nonexistent/file"); code != 1 || !strings.Contains(errs,
		"/nonexistent/file") {
		t.Errorf("a file that cannot be: %d %s", code, errs)
	}
	if code, _, errs := ctl("-s", filepath.Join(t.TempDir(), "none"), "trace"); code != 1 || !strings.Contains(errs,
		"start one") {
		t.Errorf("without a daemon: %d %s", code, errs)
	}
}

// A file that was there before is made private, and holds this trace alone. Of a frame of very many segments the
// description fits into the file.
func TestTraceFileIsPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "old.pcapng")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o666))
	s := &tracing{list: []trace.Link{{Number: 3, Name: "eth3"}}}
	show, err := (&traceCmd{Write: file}).shower(&globals{}, s)
	must(t, err)
	h := wire.Header{Type: wire.TypeData}
	tail := bytes.Repeat((&wire.Segment{Kind: wire.KindRefuse, Data: bytes.Repeat([]byte{0xff}, 500)}).AppendTo(nil),
		100)
	b := make([]byte, wire.TailStart)
	wire.Finish(b[wire.EthLen:], &h, tail)
	b = append(b, tail...)
	for range 2 {
		must(t, show.frame(time.Now(), &trace.Record{Link: 3, Len: len(b), Data: b}))
	}
	must(t, show.close())
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v", err, st.Mode())
	}
	written, err := os.ReadFile(file)
	must(t, err)
	in, err := pcapgo.NewNgReader(bytes.NewReader(written), pcapgo.DefaultNgReaderOptions)
	must(t, err)
	frames := 0
	for ; ; frames++ {
		if data, _, err := in.ReadPacketData(); err == io.EOF {
			break
		} else if err != nil || !bytes.Equal(data, b) {
			t.Fatalf("frame %d: %v, %d bytes", frames, err, len(data))
		}
	}
	if frames != 2 {
		t.Errorf("%d frames", frames)
	}
}
