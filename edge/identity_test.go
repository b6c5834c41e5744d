package edge

import (
	"errors"
	"strings"
	"testing"
)

func encrypted(e Embedded) Config {
	e.Security = "encrypted"
	return Config{Embedded: &e}
}

// Nodes with keys that were made beforehand, and nodes that learn each other's keys while they run.
func TestEmbeddedNodesAuthoriseEachOther(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	defer fab.Close()
	privateA, publicA := newKey()
	privateB, publicB := newKey()
	a, err := fab.OpenConfig(ctx, "a", encrypted(Embedded{Key: privateA, Peers: map[string]string{"b": publicB}}))
	must(t, err)
	b, err := fab.OpenConfig(ctx, "b", encrypted(Embedded{Key: privateB, Peers: map[string]string{"a": publicA}}))
	must(t, err)
	if key, err := publicKey(ctx, a); err != nil || key != publicA {
		t.Errorf("key %q, want %q: %v", key, publicA, err)
	}
	out, in := pairOn(t, ctx, a, b, "made")
	must(t, exchange(ctx, out, in, 100_000, 1))

	c, err := fab.OpenConfig(ctx, "c", encrypted(Embedded{}))
	must(t, err)
	d, err := fab.OpenConfig(ctx, "d", encrypted(Embedded{}))
	must(t, err)
	keyC, err := publicKey(ctx, c)
	must(t, err)
	keyD, err := publicKey(ctx, d)
	must(t, err)
	if keyC == keyD || keyC == "" || c.Node() == d.Node() {
		t.Errorf("two nodes have keys %q and %q", keyC, keyD)
	}
	must(t, c.authorise(map[string]string{"d": keyD}))
	must(t, d.authorise(map[string]string{"c": keyC}))
	out, in = pairOn(t, ctx, c, d, "learnt")
	must(t, exchange(ctx, out, in, 100_000, 2))
	if err := c.authorise(map[string]string{"d": "nonsense"}); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "44 characters") {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestEmbeddedIdentityIsKept(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	defer fab.Close()
	cfg := encrypted(Embedded{KeyFile: t.TempDir() + "/state/key"})
	var keys [2]string
	for i := range keys {
		d, err := fab.OpenConfig(ctx, "a", cfg)
		must(t, err)
		keys[i], err = publicKey(ctx, d)
		must(t, err)
		must(t, d.Close())
	}
	if keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("keys %q", keys)
	}
	plain, err := fab.Open("plain")
	must(t, err)
	if key, err := publicKey(ctx, plain); err != nil || key != "" {
		t.Errorf("a plaintext node has key %q: %v", key, err)
	}
	if err := plain.authorise(nil); err == nil || !strings.Contains(err.Error(), "plaintext") {
		t.Errorf("a plaintext node authorises: %v", err)
	}
}

func TestEmbeddedIdentityMistakes(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	defer fab.Close()
	private, public := newKey()
	for want, e := range map[string]Embedded{
		"both set":      {Key: private, KeyFile: "x"},
		"44 characters": {Key: "nonsense"},
		"the same key":  {Peers: map[string]string{"a": public, "b": public}},
		"peer name":     {Peers: map[string]string{"": public}},
	} {
		if _, err := fab.OpenConfig(ctx, "n", encrypted(e)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), private) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	p := newDuo(t, Config{}, 4096)
	if err := p.client.authorise(nil); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "edgectl peers") {
		t.Errorf("a daemon's peers: %v", err)
	}
}
