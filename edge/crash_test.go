package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"multiedge/internal/lab"

	"multiedge/edge"
	"multiedge/edge/stream"
)

// childPeerEnv makes the child the other side of a connection, at the daemon whose socket it names.
const childPeerEnv = "EDGE_TEST_PEER"

func init() { edge.Children[childPeerEnv] = bePeer }

// bePeer accepts a connection of "conn", exports "mem" on it, and a stream of "stream", of which it writes some bytes;
// then it does what the line on its standard input says: "close", "abort", or "exit" without either.
func bePeer(socket string) error {
	ctx := context.Background()
	d, err := edge.Open(ctx, edge.Config{Socket: socket})
	if err != nil {
		return err
	}
	l, err := d.Listen(ctx, "conn")
	if err != nil {
		return err
	}
	sl, err := stream.Config{Device: d}.Listen(ctx, "stream")
	if err != nil {
		return err
	}
	fmt.Println("at work")
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	r, err := d.Register(4096)
	if err != nil {
		return err
	}
	if _, err := r.Export(c, "mem", edge.RemoteRead|edge.RemoteWrite, 0, r.Len()); err != nil {
		return err
	}
	s, err := sl.AcceptContext(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte("begun")); err != nil {
		return err
	}
	word, err := bufio.NewReader(os.Stdin).ReadString('\n')
	switch {
	case err != nil:
		return err
	case word == "close\n":
		err = errors.Join(c.Close(), s.Close())
	case word == "abort\n":
		err = errors.Join(c.Abort(), s.Reset())
	case word == "exit\n":
		os.Exit(0)
	}
	if err != nil {
		return err
	}
	select {} // until it is killed
}

// stand is two hosts with a real link: on the first an embedded Device, on the second a daemon and a program attached
// to it, processes of their own.
type stand struct {
	t       *testing.T
	lab     *lab.Lab
	socket  string
	device  *edge.Device
	daemon  *lab.Process
	program *lab.Process
	tell    io.Writer
}

func newStand(t *testing.T) *stand {
	ctx := testContext(t)
	l, err := lab.New(ctx, lab.Spec{})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	s := &stand{t: t, lab: l, socket: filepath.Join(t.TempDir(), "d.sock")}
	must(t, l.Host(0).Do(func() error {
		s.device, err = edge.Open(ctx, edge.Config{Embedded: &edge.Embedded{
			Links: l.Host(0).LinkNames(), Name: "here", Security: "plaintext", Poll: "block",
			DeadTime: 1500 * time.Millisecond,
		}})
		return err
	}))
	t.Cleanup(func() { must(t, s.device.Close()) })
	s.startDaemon()
	s.program, s.tell = s.start(childPeerEnv + "=" + s.socket)
	return s
}

func (s *stand) startDaemon() {
	s.daemon, _ = s.start(edge.ChildDaemonEnv+"="+s.socket, edge.ChildLinkEnv+"="+s.lab.Host(1).LinkNames()[0])
}

// start starts a child on the second host and returns when it is at work.
func (s *stand) start(env ...string) (*lab.Process, io.Writer) {
	s.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(s.t, err)
	out, err := cmd.StdoutPipe()
	must(s.t, err)
	p, err := s.lab.Host(1).Start(cmd)
	must(s.t, err)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.t.Fatalf("the child ended: %q, %v", line, err)
	}
	return p, in
}

// Only Close of the peer is an end in good order, io.EOF: a program that died, was killed or aborted its connection,
// and a daemon that was killed or restarted, are none. Every call says so, those under way and those that come later;
// and ReadAt is never at the end of memory for an end of the connection.
func TestCrashIsNoCleanEnd(t *testing.T) {
	say := func(word string) func(*stand) {
		return func(s *stand) { must(s.t, second(io.WriteString(s.tell, word+"\n"))) }
	}
	for _, tc := range []struct {
		name string
		end  func(*stand)
		want error
	}{
		{"Close", say("close"), edge.ErrPeerClosed},
		{"Abort", say("abort"), edge.ErrReset},
		{"the program exits without Close", say("exit"), edge.ErrReset},
		{"kill -9 of the program", func(s *stand) { s.program.Kill() }, edge.ErrReset},
		{"kill -9 of its daemon", func(s *stand) { s.daemon.Kill() }, edge.ErrPeerDown},
		{"the daemon is killed and starts again", func(s *stand) { s.daemon.Kill(); s.daemon.Wait(); s.startDaemon() },
			edge.ErrPeerDown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testContext(t)
			s := newStand(t)
			c, err := s.device.Dial(ctx, "d", "conn")
			must(t, err)
			mem, err := c.Import(ctx, "mem")
			must(t, err)
			st, err := stream.Config{Device: s.device}.Dial(ctx, "d", "stream")
			must(t, err)
			_, err = io.ReadFull(st, make([]byte, 5))
			must(t, err)

			noted, imported, read := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go func() { noted <- second(c.WaitNotify(ctx)) }()
			go func() { imported <- second(c.Import(ctx, "never")) }()
			go func() { read <- second(st.Read(make([]byte, 1))) }()
			tc.end(s)
			for what, err := range map[string]error{
				"WaitNotify": <-noted, "Import": <-imported, "the next WaitNotify": second(c.WaitNotify(ctx)),
				"Conn.Err": c.Err(),
				"Post": second(c.Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte{1},
					Remote: mem})),
				"WaitNotify in the end": second(c.WaitNotify(ctx)),
			} {
				if !errors.Is(err, tc.want) || errors.Is(err, io.EOF) != (tc.want == edge.ErrPeerClosed) {
					t.Errorf("%s: %v, want %v", what, err, tc.want)
				}
			}
			gone := tc.want
			if gone == edge.ErrPeerClosed {
				gone = edge.ErrReset
			}
			for what, err := range map[string]error{
				"ReadAt": second(mem.ReadAt(make([]byte, 8), 0)), "ReadAt of nothing": second(mem.ReadAt(nil, 0)),
				"WriteAt": second(mem.WriteAt(make([]byte, 8), 0)),
			} {
				if !errors.Is(err, gone) || errors.Is(err, io.EOF) {
					t.Errorf("%s: %v, want %v", what, err, gone)
				}
			}
			if err := <-read; tc.want == edge.ErrPeerClosed && err != io.EOF || tc.want != edge.ErrPeerClosed &&
				(!errors.Is(err, tc.want) || errors.Is(err, io.EOF)) {
				t.Errorf("Read of a stream: %v, want %v", err, tc.want)
			}
			st.Close()
		})
	}
}
