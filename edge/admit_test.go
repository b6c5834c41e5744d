package edge

import (
	"context"
	"testing"
	"time"
)

// Importers that never confirm their connections keep no other from importing.
func TestImportersDoNotWaitForEachOther(t *testing.T) {
	f := newFake(t)
	owner, _ := f.open(Config{})
	r, err := owner.Register(4096)
	must(t, err)
	table, err := owner.Export(t.Context(), r, "table", RemoteRead)
	must(t, err)
	const silent = 3
	f.mu.Lock()
	f.deaf = silent
	f.mu.Unlock()
	given, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, silent)
	for range silent {
		d, _ := f.open(Config{})
		go func() {
			_, err := d.Import(given, "fake", "table")
			ended <- err
		}()
	}
	for left := silent; left > 0; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		left = f.deaf
		f.mu.Unlock()
		if t.Context().Err() != nil {
			t.Fatal("they were not accepted")
		}
	}
	d, _ := f.open(Config{})
	within, cancel := context.WithTimeout(t.Context(), namedTime/2)
	defer cancel()
	m, err := d.Import(within, "fake", "table")
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

// A peer has so many importers admitted and waiting, and leaves the others theirs.
func TestAdmissionsAreBounded(t *testing.T) {
	var a admissions
	var last *admission
	for range mostComing {
		if last = a.enter("crowd"); last == nil {
			t.Fatal("refused too early")
		}
	}
	if a.enter("crowd") != nil {
		t.Error("a peer's importers are not bounded")
	}
	lone := a.enter("lone")
	if lone == nil {
		t.Error("another peer's importer is refused")
	}
	a.leave(lone)
	if a.leave(last); a.enter("crowd") == nil || len(a.of) != 1 {
		t.Error("a place is not given back")
	}
}
