package edge

import (
	"bytes"
	"errors"
	"testing"

	"multiedge/internal/ipc"
)

// Each importer of a named export has the rights that its name was given, and no others.
func TestNamedRights(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	t.Cleanup(func() { fab.Close() })
	device := func(name string) *Device {
		d, err := fab.Open(name)
		must(t, err)
		return d
	}
	owner := device("owner")
	r, err := owner.Register(4096)
	must(t, err)
	for name, rights := range map[string]map[string]Perm{
		"nobody": nil, "nothing": {"b": 0}, "unknown": {"b": RemoteRead, "c": 1 << 7},
	} {
		if _, err := owner.ExportRights(ctx, r, "table", rights); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	rights := map[string]Perm{"reader": RemoteRead, "writer": RemoteRead | RemoteWrite}
	table, err := owner.ExportRights(ctx, r, "table", rights)
	must(t, err)
	rights["stranger"] = RemoteWrite // the caller's map, not the export's
	for name, want := range map[string]error{"reader": ErrPermission, "writer": nil} {
		m, err := device(name).Import(ctx, "owner", "table")
		must(t, err)
		if m.Perm() != rights[name] {
			t.Errorf("%s imported with %v", name, m.Perm())
		}
		op, err := m.conn.Post(&Work{Kind: Write, Inline: []byte(name), Remote: m})
		if err == nil {
			err = op.Wait(ctx)
		}
		if !errors.Is(err, want) {
			t.Errorf("a write of %s: %v, want %v", name, err, want)
		}
		must(t, second(m.ReadAt(make([]byte, 6), 0)))
	}
	if _, err := device("stranger").Import(ctx, "owner", "table"); !errors.Is(err, ErrRefused) {
		t.Errorf("a node without rights: %v, want ErrRefused", err)
	}
	back, err := table.Unexport(ctx)
	must(t, err)
	if got := string(back.Bytes()[:6]); got != "writer" {
		t.Errorf("the memory has %q", got)
	}
}

// Unexport in the middle of an importer's writes: when it has returned nothing changes the memory any more, and what
// the importer does next says that the memory is gone, as does everything that was under way.
func TestUnexportDrains(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		const size = 1 << 20
		r, err := b.Register(size)
		must(t, err)
		table, err := b.Export(ctx, r, "table", RemoteRead|RemoteWrite)
		must(t, err)
		m, err := a.Import(ctx, b.Name(), "table")
		must(t, err)
		local, err := a.Register(size)
		must(t, err)
		begun, ended := make(chan bool), make(chan error)
		go func() {
			for i := 0; ; i++ {
				for j := range local.Bytes() { // no write is under way that has not ended
					local.Bytes()[j] = byte(i)
				}
				op, err := m.conn.PostWait(ctx, &Work{Kind: Write, Local: local, Len: size, Remote: m})
				if i == 2 {
					close(begun)
				}
				if err == nil {
					err = op.Wait(ctx)
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		<-begun
		back, err := table.Unexport(ctx)
		must(t, err)
		was := bytes.Clone(back.Bytes())
		gone := func(what string, err error) {
			if !errors.Is(err, ErrKey) {
				t.Errorf("%s: %v, want ErrKey or ErrRevoked", what, err)
			}
		}
		gone("what was under way", <-ended)
		for _, what := range []string{"a read afterwards", "once more"} {
			gone(what, second(m.ReadAt(make([]byte, 1), 0)))
		}
		if _, err := m.conn.WaitNotify(ctx); err != ErrRevoked {
			t.Errorf("the import's connection ended with %v, want ErrRevoked", err)
		}
		if !bytes.Equal(back.Bytes(), was) {
			t.Error("the memory changed after Unexport")
		}
		if _, err := a.Import(ctx, b.Name(), "table"); !errors.Is(err, ErrRefused) {
			t.Errorf("an import afterwards: %v", err)
		}
		must(t, back.Close())
	})
}

// An importer that exports memory under no name is there as any other: its notifications are not taken for those of one
// that has gone, of which few are remembered.
func TestNamedTakesFromWhoExports(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	t.Cleanup(func() { fab.Close() })
	owner, err := fab.Open("owner")
	must(t, err)
	r, err := owner.Register(4096)
	must(t, err)
	table, err := owner.Export(ctx, r, "table", RemoteWrite)
	must(t, err)
	importer, err := fab.Open("importer")
	must(t, err)
	m, err := importer.Import(ctx, "owner", "table")
	must(t, err)
	_, err = m.conn.Post(&Work{Kind: Write, Inline: []byte("x"), Remote: m, Flags: Notify})
	must(t, err)
	first, err := table.WaitNotify(ctx)
	must(t, err)
	at := first.Grant.conn
	at.advertised(&ipc.Message{Kind: ipc.KindAdvert, Key: 1, Size: 1, Perm: uint8(RemoteRead)})
	table.left.Store(maxLeft)
	passed := make(chan bool, 1)
	go func() { passed <- table.pass(at, Notification{Imm: 7}) }()
	select {
	case note := <-table.notes:
		if note.Imm != 7 || !<-passed {
			t.Errorf("notified of %+v", note)
		}
	case <-passed:
		t.Error("the importer is taken for one that has gone")
	}
	table.left.Store(0)
	_, err = table.Unexport(ctx)
	must(t, err)
}
