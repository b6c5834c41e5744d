package edge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/internal/secure"

	"golang.org/x/sys/unix"

	"multiedge/edge"
	"multiedge/edge/atomics"
	"multiedge/edge/named"
	"multiedge/edge/stream"
)

// openAs attaches a Device as another user: the kernel notes that of the thread that connects, which ends with its
// goroutine.
func openAs(t *testing.T, h *edge.TestHost, uid, gid uintptr) *edge.Device {
	t.Helper()
	type result struct {
		d   *edge.Device
		err error
	}
	done := make(chan result)
	ctx := testContext(t)
	go func() {
		runtime.LockOSThread()
		for _, call := range [][2]uintptr{{unix.SYS_SETRESGID, gid}, {unix.SYS_SETRESUID, uid}} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[1], call[1]); errno != 0 {
				done <- result{nil, errno}
				return
			}
		}
		d, err := edge.Open(ctx, edge.Config{Socket: h.Config().Socket})
		done <- result{d, err}
	}()
	r := <-done
	must(t, r.err)
	t.Cleanup(func() { r.d.Close() })
	return r.d
}

// publicHost is a daemon that every user may use, with encryption.
func publicHost(t *testing.T) *edge.TestHost {
	t.Helper()
	if os.Geteuid() != 0 {
		edge.Lacks(t, "the right to be several users")
	}
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	fab := edge.NewFabric()
	t.Cleanup(func() { fab.Close() })
	return edge.NewHost(t, fab, "here", func(c *config.Config) {
		c.Security, c.Mode, c.Socket = config.Encrypted, "0666", filepath.Join(dir, "sock")
		c.KeyFile, c.PeersFile = filepath.Join(dir, "key"), filepath.Join(dir, "peers")
	})
}

// Who of this host may import what, by his user or group; what is exported to all peers is for the owner's own programs
// and root.
func TestLocalRights(t *testing.T) {
	ctx := testContext(t)
	h := publicHost(t)
	const owner, other, nobody = 12345, 12346, 65534
	o := openAs(t, h, owner, owner)
	devices := map[int]*edge.Device{0: openAs(t, h, 0, 0), other: openAs(t, h, other, other), nobody: openAs(t, h,
		nobody, nobody)}
	const both = edge.RemoteRead | edge.RemoteWrite
	for name, c := range map[string]struct {
		rights map[string]edge.Perm // nil: all peers
		want   map[int]edge.Perm
	}{
		"peers": {nil, map[int]edge.Perm{0: edge.RemoteRead}},
		"user":  {map[string]edge.Perm{named.User(other): both}, map[int]edge.Perm{other: both}},
		"group": {map[string]edge.Perm{named.Group(65534): edge.RemoteRead},
			map[int]edge.Perm{nobody: edge.RemoteRead}},
		"node": {map[string]edge.Perm{"here": edge.RemoteRead, named.User(0): edge.RemoteWrite},
			map[int]edge.Perm{0: both, other: edge.RemoteRead, nobody: edge.RemoteRead}},
		"peer": {map[string]edge.Perm{"elsewhere": edge.RemoteRead}, nil},
	} {
		r, err := o.Register(4096)
		must(t, err)
		var table *named.Memory
		if c.rights == nil {
			table, err = named.Export(ctx, o, r, name, edge.RemoteRead)
		} else {
			table, err = named.ExportRights(ctx, o, r, name, c.rights)
		}
		must(t, err)
		for uid, d := range devices {
			m, err := named.Import(ctx, d, "here", name)
			switch want := c.want[uid]; {
			case want == 0 && !errors.Is(err, edge.ErrRefused):
				t.Errorf("%s: user %d imports: %v, want ErrRefused", name, uid, err)
			case want != 0 && err != nil:
				t.Errorf("%s: user %d cannot import: %v", name, uid, err)
			case want != 0 && m.Perm() != want:
				t.Errorf("%s: user %d has %v, want %v", name, uid, m.Perm(), want)
			}
		}
		must(t, second(table.Unexport(ctx)))
	}
	r, err := o.Register(4096)
	must(t, err)
	for _, name := range []string{"uid:", "uid:x", "gid:-1", "uid:01", "gid:4294967296"} {
		if _, err := named.ExportRights(ctx, o, r, "bad", map[string]edge.Perm{name: edge.RemoteRead}); !errors.Is(err,
			edge.ErrInvalid) {
			t.Errorf("rights for %q: %v, want ErrInvalid", name, err)
		}
	}
}

// A service is told which user of this host asks.
func TestRequestUser(t *testing.T) {
	ctx := testContext(t)
	h := publicHost(t)
	l, err := h.Open(edge.Config{}).Listen(ctx, "who")
	must(t, err)
	for _, uid := range []uintptr{0, 12345, 1<<32 - 2} {
		d := openAs(t, h, uid, 0)
		dialled := make(chan error, 1)
		go func() { dialled <- second(d.Dial(ctx, d.Node(), "who")) }()
		req, err := l.Next(ctx)
		must(t, err)
		if got, local := req.User(); got != uint32(uid) || !local || req.Peer() != "here" {
			t.Errorf("user %d is %d, %v, of %q", uid, got, local, req.Peer())
		}
		must(t, second(req.Accept(ctx, nil)))
		must(t, <-dialled)
	}
}

// TestSelf has two programs of one daemon do to each other what peers do, on one shard and on two: streams both ways,
// and all kinds of operations. The daemon has a real link, which sees nothing of it.
func TestSelf(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			ctx := testContext(t)
			l, err := lab.New(ctx, lab.Spec{})
			must(t, err)
			t.Cleanup(func() { must(t, l.Close()) })
			key := secure.NewPrivateKey()
			h := edge.PlacedHost(t, l.Host(0), &key, config.Config{
				Security: config.Encrypted, Name: "here", Socket: filepath.Join(t.TempDir(), "s"), Shards: shards,
				Poll: "block", Links: []config.Link{{Name: l.Host(0).LinkNames()[0]}},
				PeersFile: filepath.Join(t.TempDir(), "peers"),
			})
			h.Start()
			t.Cleanup(h.Stop)
			a, b := h.Open(edge.Config{}), h.Open(edge.Config{}) // on two shards, if there are two
			for _, pair := range [][2]*edge.Device{{a, b}, {b, a}, {a, a}} {
				selfStream(t, ctx, pair[0], pair[1])
				selfOperations(t, ctx, pair[0], pair[1])
			}
		})
	}
}

func selfStream(t *testing.T, ctx context.Context, from, to *edge.Device) {
	t.Helper()
	l, err := stream.Config{Device: to}.Listen(ctx, "echo")
	must(t, err)
	defer l.Close()
	echoed := make(chan error, 1)
	go func() {
		s, err := l.AcceptContext(ctx)
		if err == nil {
			_, err = io.Copy(s, s)
			err = errors.Join(err, s.Close())
		}
		echoed <- err
	}()
	s, err := stream.Config{Device: from}.Dial(ctx, to.Node(), "echo")
	must(t, err)
	want := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{9}).Read(want)
	go func() {
		s.Write(want)
		s.CloseWrite()
	}()
	got, err := io.ReadAll(s)
	must(t, err)
	must(t, <-echoed)
	must(t, s.Close())
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back of %d, or others", len(got), len(want))
	}
}

func selfOperations(t *testing.T, ctx context.Context, from, to *edge.Device) {
	t.Helper()
	const size = 1 << 20
	mem, err := to.Register(size)
	must(t, err)
	table, err := named.Export(ctx, to, mem, "table", edge.RemoteRead|edge.RemoteWrite|edge.RemoteAtomic)
	must(t, err)
	m, err := named.Import(ctx, from, to.Name(), "table")
	must(t, err)
	local, err := from.Register(size)
	must(t, err)
	rand.NewChaCha8([32]byte{8}).Read(local.Bytes())
	want := bytes.Clone(local.Bytes())
	op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Local: local, Len: size, Remote: m, Flags: edge.Notify,
		Imm: 7})
	must(t, err)
	note, err := table.WaitNotify(ctx)
	must(t, err)
	if note.Imm != 7 || note.Len != size || !bytes.Equal(mem.Bytes(), want) {
		t.Errorf("notified of %d bytes with %d, or other bytes were written", note.Len, note.Imm)
	}
	must(t, op.Wait(ctx))
	clear(local.Bytes())
	op, err = m.Conn().Post(ctx, &edge.Work{Kind: edge.Read, Local: local, Len: size, Remote: m,
		Flags: edge.BackwardFence})
	must(t, err)
	must(t, op.Wait(ctx))
	if !bytes.Equal(local.Bytes(), want) {
		t.Error("other bytes were read")
	}
	clear(mem.Bytes()[:8])
	for i := range uint64(10) {
		if was, err := atomics.Add(ctx, m, 0, 3); was != 3*i || err != nil {
			t.Errorf("the counter was %d, want %d: %v", was, 3*i, err)
		}
	}
	must(t, second(table.Unexport(ctx)))
	if _, err := m.ReadAt(make([]byte, 1), 0); !errors.Is(err, edge.ErrKey) {
		t.Errorf("a read after Unexport: %v", err)
	}
	must(t, local.Close())
	must(t, mem.Close())
}

// A service that nobody offers is no service here either, and the dial says so soon, on every shard.
func TestSelfNoService(t *testing.T) {
	fab := edge.NewFabric()
	t.Cleanup(func() { fab.Close() })
	embedded, err := fab.Open("b")
	must(t, err)
	for name, d := range map[string]*edge.Device{"daemon": edge.NewHost(t, fab, "a", nil).Open(edge.Config{}),
		"embedded": embedded} {
		begin := time.Now()
		if _, err := d.Dial(testContext(t), d.Name(), "none"); !errors.Is(err, edge.ErrNoService) {
			t.Errorf("%s: %v, want ErrNoService", name, err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s: that took %v", name, took)
		}
	}
}
