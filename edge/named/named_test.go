package named_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/named"
)

// Memory is exported by name before there is any connection, to many; an import connects by itself, and each importer's
// notifications come out at the export.
func TestNamedExport(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	owner := open(fab, "owner")
	r, err := owner.Register(1 << 16)
	check(err)
	table, err := named.Export(ctx, owner, r, "table", edge.RemoteRead|edge.RemoteWrite, "b", "c")
	check(err)
	if _, err := named.Export(ctx, owner, r, "table", edge.RemoteRead); !errors.Is(err, edge.ErrExists) {
		t.Errorf("a second export of the name: %v, want ErrExists", err)
	}

	var imports []*edge.RemoteRegion
	for i, name := range []string{"b", "c"} {
		d := open(fab, name)
		m, err := named.Import(ctx, d, "owner", "table")
		if err != nil {
			t.Fatalf("%s imports: %v", name, err)
		}
		imports = append(imports, m)
		op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte(name), Remote: m, RemoteOff: 8 * i,
			Flags: edge.Notify, Imm: uint32(i)})
		check(err)
		note, err := table.WaitNotify(ctx)
		check(err)
		if got := string(note.Grant.Bytes()[note.Offset:][:note.Len]); got != name || note.Imm != uint32(i) {
			t.Errorf("notified of %q with %d, want %q with %d", got, note.Imm, name, i)
		}
		check(op.Wait(ctx))
	}
	if n := table.Importers(); n != 2 {
		t.Errorf("%d importers, want 2", n)
	}
	if _, err := named.Import(ctx, open(fab, "d"), "owner", "table"); !errors.Is(err, edge.ErrRefused) {
		t.Errorf("a node that may not import: %v, want ErrRefused", err)
	}
	if _, err := named.Import(ctx, imports[0].Conn().Device(), "owner", "tables"); !errors.Is(err, edge.ErrRefused) {
		t.Errorf("a name that is not exported: %v, want ErrRefused", err)
	}

	check(imports[1].Conn().Close())
	for table.Importers() != 1 {
		if ctx.Err() != nil {
			t.Fatal("an importer that closed its connection counts still")
		}
		time.Sleep(time.Millisecond)
	}

	back, err := table.Unexport(ctx)
	check(err)
	was := string(back.Bytes()[:8])
	m := imports[0]
	op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte("late"), Remote: m})
	if err == nil {
		err = op.Wait(ctx)
	}
	if !errors.Is(err, edge.ErrKey) || string(back.Bytes()[:8]) != was {
		t.Errorf("a write after Unexport: %v, and the memory has %q", err, back.Bytes()[:8])
	}
	if _, err := named.Import(ctx, m.Conn().Device(), "owner", "table"); !errors.Is(err, edge.ErrRefused) {
		t.Errorf("an import after Unexport: %v, want ErrRefused", err)
	}
	check(back.Close())
}
