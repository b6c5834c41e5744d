package edge_test

import (
	"context"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/named"
)

// Importers that never confirm their connections keep no other from importing.
func TestImportersDoNotWaitForEachOther(t *testing.T) {
	f := edge.NewFake(t)
	owner := f.Open(edge.Config{})
	r, err := owner.Register(4096)
	must(t, err)
	table, err := named.Export(t.Context(), owner, r, "table", edge.RemoteRead)
	must(t, err)
	const silent = 3
	f.Deafen(silent)
	given, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, silent)
	for range silent {
		d := f.Open(edge.Config{})
		go func() {
			_, err := named.Import(given, d, "fake", "table")
			ended <- err
		}()
	}
	for ; f.Deaf() > 0; time.Sleep(time.Millisecond) {
		if t.Context().Err() != nil {
			t.Fatal("they were not accepted")
		}
	}
	d := f.Open(edge.Config{})
	within, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	m, err := named.Import(within, d, "fake", "table")
	if err != nil {
		t.Fatalf("beside %d importers that do not confirm: %v", silent, err)
	}
	must(t, m.Conn().Close())
	giveUp()
	for range silent {
		<-ended
	}
	if _, err := table.Unexport(t.Context()); err != nil {
		t.Error(err)
	}
}
