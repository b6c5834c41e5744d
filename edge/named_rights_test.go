package edge_test

import (
	"bytes"
	"errors"
	"testing"

	"multiedge/edge"
	"multiedge/edge/named"
)

// Each importer of a named export has the rights that its name was given, and no others.
func TestNamedRights(t *testing.T) {
	ctx := testContext(t)
	fab := edge.NewFabric()
	t.Cleanup(func() { fab.Close() })
	device := func(name string) *edge.Device {
		d, err := fab.Open(name)
		must(t, err)
		return d
	}
	owner := device("owner")
	r, err := owner.Register(4096)
	must(t, err)
	for name, rights := range map[string]map[string]edge.Perm{
		"nobody": nil, "nothing": {"b": 0}, "unknown": {"b": edge.RemoteRead, "c": 1 << 7},
	} {
		if _, err := named.ExportRights(ctx, owner, r, "table", rights); !errors.Is(err, edge.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	rights := map[string]edge.Perm{"reader": edge.RemoteRead, "writer": edge.RemoteRead | edge.RemoteWrite}
	table, err := named.ExportRights(ctx, owner, r, "table", rights)
	must(t, err)
	rights["stranger"] = edge.RemoteWrite // the caller's map, not the export's
	for name, want := range map[string]error{"reader": edge.ErrPermission, "writer": nil} {
		m, err := named.Import(ctx, device(name), "owner", "table")
		must(t, err)
		if m.Perm() != rights[name] {
			t.Errorf("%s imported with %v", name, m.Perm())
		}
		op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte(name), Remote: m})
		if err == nil {
			err = op.Wait(ctx)
		}
		if !errors.Is(err, want) {
			t.Errorf("a write of %s: %v, want %v", name, err, want)
		}
		must(t, second(m.ReadAt(make([]byte, 6), 0)))
	}
	if _, err := named.Import(ctx, device("stranger"), "owner", "table"); !errors.Is(err, edge.ErrRefused) {
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
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		const size = 1 << 20
		r, err := b.Register(size)
		must(t, err)
		table, err := named.Export(ctx, b, r, "table", edge.RemoteRead|edge.RemoteWrite)
		must(t, err)
		m, err := named.Import(ctx, a, b.Name(), "table")
		must(t, err)
		local, err := a.Register(size)
		must(t, err)
		begun, ended := make(chan bool), make(chan error)
		go func() {
			for i := 0; ; i++ {
				for j := range local.Bytes() { // no write is under way that has not ended
					local.Bytes()[j] = byte(i)
				}
				op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Local: local, Len: size, Remote: m})
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
			if !errors.Is(err, edge.ErrKey) {
				t.Errorf("%s: %v, want ErrKey or ErrRevoked", what, err)
			}
		}
		gone("what was under way", <-ended)
		for _, what := range []string{"a read afterwards", "once more"} {
			gone(what, second(m.ReadAt(make([]byte, 1), 0)))
		}
		if _, err := m.Conn().WaitNotify(ctx); err != edge.ErrRevoked {
			t.Errorf("the import's connection ended with %v, want ErrRevoked", err)
		}
		if !bytes.Equal(back.Bytes(), was) {
			t.Error("the memory changed after Unexport")
		}
		if _, err := named.Import(ctx, a, b.Name(), "table"); !errors.Is(err, edge.ErrRefused) {
			t.Errorf("an import afterwards: %v", err)
		}
		must(t, back.Close())
	})
}

// An import of what is not exported says so, and what to do.
func TestImportOfNothing(t *testing.T) {
	f := edge.NewFabric()
	a, _ := edge.NewHost(t, f, "a", nil), edge.NewHost(t, f, "b", nil)
	_, err := named.Import(testContext(t), a.Open(edge.Config{}), "b", "nothing")
	if !errors.Is(err, edge.ErrRefused) || err.Error() != "edge: b exports no memory named \"nothing\"; start what "+
		"exports it there, or check the name (edgectl export)" {
		t.Errorf("an import of nothing: %v", err)
	}
}
