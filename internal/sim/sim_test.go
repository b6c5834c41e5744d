package sim

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

func TestConnectAndWrite(t *testing.T) {
	w := New(Options{Seed: 1, MTU: 9000})
	a, b := w.Nodes[0], w.Nodes[1]
	ca, cb, err := w.Connect(a, b, engine.DialOptions{})
	must(t, err)
	target := make([]byte, 1<<20)
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(target)}
	key, err := b.Grants.Grant(region, uint64(cb), regmem.RemoteWrite|regmem.RemoteRead, 0, uint64(len(target)))
	must(t, err)
	src := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	a.Events, b.Events = nil, nil
	if !a.E.Submit(w.Now, ca, &engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Imm: 42, Token: 7, Local: src,
		Key: key}) {
		t.Fatal("not taken")
	}
	done := func() bool { return len(a.Events) > 0 && a.Events[len(a.Events)-1].Kind == engine.EvComplete }
	must(t, w.Run(time.Second, done))
	if !bytes.Equal(src, target) {
		t.Fatal("memory differs")
	}
	n, ok := b.E.TakeNotify(cb)
	if !ok || n.Imm != 42 || n.Len != 1<<20 {
		t.Fatalf("notification %+v %v", n, ok)
	}
	back := make([]byte, 1<<20)
	a.Events = nil
	a.E.Submit(w.Now, ca, &engine.Op{Kind: engine.OpRead, Token: 8, Local: back, Key: key})
	must(t, w.Run(time.Second, done))
	if !bytes.Equal(back, target) || a.Events[len(a.Events)-1].Status != engine.OK {
		t.Fatal("read differs", a.Events)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
