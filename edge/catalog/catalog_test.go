package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/catalog"
	"multiedge/edge/fabric"
)

// store is a program with very many objects of 64 bytes, of which it exports by a catalog those that are asked for.
type store struct {
	r     *edge.Region
	mu    sync.Mutex
	asked map[string]int
}

func (s *store) lookup(peer, name string) (edge.Piece, edge.Perm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[name]++
	var n int
	if _, err := fmt.Sscanf(name, "object %d", &n); err != nil || n >= 1<<20 {
		return edge.Piece{}, 0, fmt.Errorf("no object %q", name)
	}
	return edge.Piece{Region: s.r, Off: n % 1024 * 64, Len: 64}, edge.RemoteRead | edge.RemoteWrite, nil
}

// newStore serves a catalog of a million names at "owner".
func newStore(t *testing.T, fab *fabric.Fabric, peers ...string) (*store, *catalog.Catalog) {
	d := open(fab, "owner")
	r, err := d.Register(1 << 16)
	check(err)
	s := &store{r: r, asked: map[string]int{}}
	c, err := catalog.Serve(t.Context(), d, "store", s.lookup, peers...)
	check(err)
	return s, c
}

// Of a million names an importer learns what it asks for, once; what it keeps is bounded, and asked for anew when it
// was given up.
func TestCatalog(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	s, cat := newStore(t, fab, "b")
	m, err := catalog.Open(ctx, open(fab, "b"), "owner", "store", 4)
	check(err)
	if _, err := catalog.Open(ctx, open(fab, "c"), "owner", "store", 0); !errors.Is(err, edge.ErrRefused) {
		t.Errorf("a node that may not import: %v, want ErrRefused", err)
	}
	write := func(name string) *edge.RemoteRegion {
		t.Helper()
		r, err := m.Import(ctx, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte(name), Remote: r})
		if err == nil {
			err = op.Wait(ctx)
		}
		if err != nil {
			t.Fatalf("write to %s: %v", name, err)
		}
		return r
	}
	for i := range 20 { // each is released and, of the last four, kept
		m.Release(write(fmt.Sprintf("object %d", 1000*i)))
		if n := cat.Held(); n > 4 {
			t.Fatalf("%d names are held, 4 may be", n)
		}
	}
	first := write("object 0")
	m.Release(first)
	m.Release(write("object 0"))
	if n := s.asked["object 0"]; n != 2 {
		t.Errorf("object 0 was asked for %d times, want 2: at first, and after it was given up", n)
	}
	if got := string(s.r.Bytes()[19000%1024*64:][:12]); got != "object 19000" {
		t.Errorf("memory has %q", got)
	}
	for range 2 {
		if _, err := m.Import(ctx, "nonsense"); !errors.Is(err, edge.ErrRefused) ||
			!strings.Contains(err.Error(), `no object "nonsense"`) {
			t.Errorf("a name that is not offered: %v", err)
		}
	}
	for i := range 4 {
		write(fmt.Sprintf("object %d", i))
	}
	if _, err := m.Import(ctx, "object 9"); !errors.Is(err, edge.ErrLimit) {
		t.Errorf("a fifth name in use: %v, want ErrLimit", err)
	}

	r, err := m.Import(ctx, "object 3")
	check(err)
	check(cat.Withdraw("object 3"))
	op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte("x"), Remote: r})
	if err == nil {
		err = op.Wait(ctx)
	}
	if !errors.Is(err, edge.ErrKey) {
		t.Errorf("write to what was withdrawn: %v, want ErrKey", err)
	}
	check(cat.Close())
	if _, err := m.Import(ctx, "object 5"); err == nil {
		t.Error("a catalog that was closed answers")
	}
}

// What lookup found before a name was withdrawn is not exported afterwards: when Withdraw has returned, the memory is
// the program's alone.
func TestCatalogWithdrawDuringLookup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	d := open(fab, "owner")
	r, err := d.Register(4096)
	check(err)
	found, withdrawn := make(chan bool, 1), make(chan bool)
	lookups := 0
	cat, err := catalog.Serve(ctx, d, "store", func(peer, name string) (edge.Piece, edge.Perm, error) {
		if lookups++; lookups > 1 {
			return edge.Piece{}, 0, errors.New("it is gone")
		}
		found <- true
		<-withdrawn
		return edge.Piece{Region: r, Len: 64}, edge.RemoteWrite, nil
	})
	check(err)
	m, err := catalog.Open(ctx, open(fab, "b"), "owner", "store", 4)
	check(err)
	imported := make(chan error)
	go func() {
		_, err := m.Import(ctx, "object")
		imported <- err
	}()
	<-found
	check(cat.Withdraw("object"))
	close(withdrawn)
	if err := <-imported; !errors.Is(err, edge.ErrRefused) || !strings.Contains(err.Error(), "it is gone") {
		t.Errorf("an import of what was withdrawn meanwhile: %v", err)
	}
	if n := cat.Held(); n != 0 {
		t.Errorf("%d names are held", n)
	}
	check(cat.Close())
}

// Imports whose callers give up are answered nevertheless: their slots hold their names until then, and what was
// exported for them is released like all else that nobody uses.
func TestCatalogAbandonedImports(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	d := open(fab, "owner")
	r, err := d.Register(1 << 16)
	check(err)
	s := &store{r: r, asked: map[string]int{}}
	looking, hold := make(chan bool, 64), make(chan bool)
	cat, err := catalog.Serve(ctx, d, "store", func(peer, name string) (edge.Piece, edge.Perm, error) {
		looking <- true
		<-hold
		return s.lookup(peer, name)
	})
	check(err)
	m, err := catalog.Open(ctx, open(fab, "b"), "owner", "store", 20)
	check(err)
	brief, giveUp := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range 30 { // more than there are slots
		all.Go(func() {
			if _, err := m.Import(brief, fmt.Sprintf("object %d", i)); err == nil {
				t.Errorf("object %d was imported", i)
			}
		})
	}
	<-looking
	giveUp()
	all.Wait()
	close(hold)
	for i := 100; i < 120; i++ { // as many as are kept
		if _, err := m.Import(ctx, fmt.Sprintf("object %d", i)); err != nil {
			t.Fatalf("object %d: %v", i, err)
		}
	}
	s.mu.Lock()
	for name, n := range s.asked {
		if n != 1 {
			t.Errorf("%q was asked for %d times", name, n)
		}
	}
	s.mu.Unlock()
	// the exporter reads the last releases before the question after them
	if n := cat.Held(); n > 20 {
		t.Errorf("%d names are held by an importer of 20", n)
	}
}

// Goroutines that import the same few names, more than are kept, get each what they asked for.
func TestCatalogTogether(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	s, _ := newStore(t, fab)
	m, err := catalog.Open(ctx, open(fab, "b"), "owner", "store", 9)
	check(err)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 100 {
				n := (g*5 + i*7) % 12
				name := fmt.Sprintf("object %d", n)
				r, err := m.Import(ctx, name)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				op, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte(name), Remote: r})
				if err == nil {
					err = op.Wait(ctx)
				}
				if err != nil {
					t.Errorf("write to %s: %v", name, err)
				}
				m.Release(r)
			}
		})
	}
	all.Wait()
	for n := range 12 {
		want := fmt.Sprintf("object %d", n)
		if got := string(s.r.Bytes()[n*64:][:len(want)]); got != want && s.asked[want] > 0 {
			t.Errorf("memory of %q has %q", want, got)
		}
	}
}

func open(fab *fabric.Fabric, name string) *edge.Device {
	d, err := fab.Open(name)
	check(err)
	return d
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
