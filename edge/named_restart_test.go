package edge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/named"
)

// After a restart of the daemon, memory that the owner uses is renewed by Memory.Region alone: an importer that comes
// before does not take it from under the owner. Memory that the owner never asked for is renewed for the importer.
func TestNamedRenewsForItsOwner(t *testing.T) {
	ctx := testContext(t)
	fab := edge.NewFabric()
	here := edge.NewHost(t, fab, "here", nil)
	there := edge.NewHost(t, fab, "there", nil)
	owner, importer := here.Open(edge.Config{}), there.Open(edge.Config{})
	export := func(name string) *named.Memory {
		r, err := owner.Register(4096)
		must(t, err)
		copy(r.Bytes(), name)
		m, err := named.Export(ctx, owner, r, name, edge.RemoteRead)
		must(t, err)
		return m
	}
	used := export("used")
	export("idle")
	mem, err := used.Region(ctx)
	must(t, err)

	here.Stop()
	here.Start()
	imports := func(name string) (m *edge.RemoteRegion, err error) {
		eventually(t, name+" is imported or refused", 10*time.Second, func() bool {
			m, err = named.Import(ctx, importer, "here", name)
			return err == nil || errors.Is(err, edge.ErrRefused) && strings.Contains(err.Error(), "has yet to renew it")
		})
		return m, err
	}
	holds := func(name string, m *edge.RemoteRegion) {
		t.Helper()
		var b [4]byte
		if _, err := m.ReadAt(b[:], 0); err != nil || string(b[:]) != name {
			t.Errorf("memory %s holds %q, %v", name, b, err)
		}
	}
	m, err := imports("idle")
	must(t, err)
	holds("idle", m)
	if _, err := imports("used"); !errors.Is(err, edge.ErrRefused) {
		t.Errorf("an import before the owner renewed: %v, want ErrRefused", err)
	}
	if _, err := mem.WriteAt([]byte("used"), 0); err != nil {
		t.Fatalf("the owner's memory is gone: %v", err)
	}
	mem, err = used.Region(ctx)
	must(t, err)
	must(t, mem.Err())
	m, err = imports("used")
	must(t, err)
	holds("used", m)
}
