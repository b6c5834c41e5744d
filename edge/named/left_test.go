package named_test

import (
	"context"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/named"
)

// Importers that notify and leave, of an export whose owner takes no notifications, are not remembered without bound.
func TestNamedForgetsImporters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	owner, importer := open(fab, "owner"), open(fab, "importer")
	r, err := owner.Register(4096)
	check(err)
	table, err := named.Export(ctx, owner, r, "table", edge.RemoteWrite)
	check(err)
	const comers, kept = 150, 64
	for range comers {
		m, err := named.Import(ctx, importer, "owner", "table")
		check(err)
		for range 2 {
			op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte{1}, Remote: m,
				Flags: edge.Notify})
			check(err)
			check(op.Wait(ctx))
		}
		check(m.Conn().Close())
	}
	for table.Importers() > kept {
		if ctx.Err() != nil {
			t.Fatalf("%d importers of %d that have left are remembered", table.Importers(), comers)
		}
		time.Sleep(time.Millisecond)
	}
	for range table.Importers() { // what is kept is not lost
		if _, err := table.WaitNotify(ctx); err != nil {
			t.Fatal(err)
		}
	}
	_, err = table.Unexport(ctx)
	check(err)
}
