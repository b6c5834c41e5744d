package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// shared is a rig whose connection belongs to a domain at node 1, which shares memory with it from an address on.
type shared struct {
	*rig
	c   [2]engine.ConnID
	mem []byte
	key regmem.Key
}

const sharedBase = 1 << 40

func newShared(t *testing.T) *shared {
	t.Helper()
	r := newRig(t, rigOptions{})
	s := &shared{rig: r, c: r.connect(engine.DialOptions{Ordered: true}), mem: make([]byte, 4096)}
	r.settle()
	domain := regmem.Domain(1, 1)
	r.n[1].e.SetDomain(s.c[1], domain)
	var err error
	s.key, err = r.n[1].grants.GrantShared(&regmem.Region{ID: 1, Mem: regmem.Wrap(s.mem)}, domain, both, 0, 4096, 7,
		sharedBase)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Clause 22.2: a key of a domain cannot be redirected, since it goes without its connections being told.
func TestDomainIsNotRedirected(t *testing.T) {
	s := newShared(t)
	to := make([]byte, 64)
	region := &regmem.Region{ID: 9, Mem: regmem.Wrap(to)}
	if st := redirectTo(s.n[1].e, s.c[1], 1, s.key, sharedBase, to, region); st != engine.StatusOwner {
		t.Fatalf("a redirection of a domain's memory: %v", st)
	}
}

// Clause 22.3: sends behind a refused operation are refused too, however many there are, though no buffer is posted.
func TestStoppedSendsEnd(t *testing.T) {
	s := newShared(t)
	s.submit(0, s.c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Local: make([]byte, 8), Key: s.key + 1,
		Off: sharedBase})
	for token := uint64(2); token < 6; token++ {
		s.submit(0, s.c[0], engine.Op{Kind: engine.OpSend, Token: token, Local: make([]byte, 8),
			Patience: engine.NoWait})
	}
	s.must("the ends of all", time.Second, s.all(0, 5))
	s.wantStatus(0, 1, engine.StatusKey)
	for token := uint64(2); token < 6; token++ {
		s.wantStatus(0, token, engine.StatusStopped)
	}
}
