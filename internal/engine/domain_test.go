package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
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

func newShared(t *testing.T) *shared { return newSharedOn(t, inOrder) }

func newSharedOn(t *testing.T, o engine.DialOptions) *shared {
	t.Helper()
	r := newRig(t, rigOptions{})
	s := &shared{rig: r, c: r.connect(o), mem: make([]byte, 4096)}
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

// Clause 14.9: a Tell uses up a buffer and leaves it as it is; of a length that is not the latest write's, and without
// a domain, it is a message longer than its buffer. A strict one without a buffer fails.
func TestTell(t *testing.T) {
	tell := func(token uint64, n uint32) engine.Op {
		op := engine.Op{Flags: engine.Notify, Imm: uint32(10 + token), Token: token}
		op.SetTell(n)
		return op
	}
	for _, domain := range []bool{true, false} {
		s := newShared(t)
		if !domain {
			s.n[1].e.SetDomain(s.c[1], 0)
		}
		box := s.post(1, s.c[1], 0, 1, 8)
		s.post(1, s.c[1], 0, 2, 8)
		s.settle()
		if domain {
			s.submit(0, s.c[0], engine.Op{Kind: engine.OpWrite, Local: make([]byte, 1000), Key: s.key, Off: sharedBase})
		}
		s.submit(0, s.c[0], tell(1, 1000))
		s.submit(0, s.c[0], tell(2, 0))
		s.must("the buffers", time.Second, s.got(1, 2))
		for i, ev := range s.received(1) {
			status, msg := engine.StatusTooLong, engine.Arrived{}
			if domain {
				status = engine.OK
				msg = engine.Arrived{Len: uint32(1000 * (1 - i)), Imm: uint32(11 + i), HasImm: true, Tells: true}
			}
			if ev.Status != status || ev.Token != uint64(i+1) || ev.Msg != msg {
				t.Errorf("domain %v: %+v, want %v with %+v", domain, ev, status, msg)
			}
		}
		if !bytes.Equal(box, make([]byte, 8)) {
			t.Error("a Tell wrote into a buffer")
		}
		if domain {
			lie := tell(3, 1000) // there was no further write
			s.post(1, s.c[1], 0, 3, 8)
			s.submit(0, s.c[0], lie)
			s.must("the lie", time.Second, s.all(0, 4))
			s.wantStatus(0, 3, engine.StatusTooLong)
		}
	}
	s := newShared(t)
	strict := tell(1, 0)
	strict.Patience = engine.NoWait
	s.post(1, s.c[1], 0, 1, 8)
	s.settle()
	s.submit(0, s.c[0], send(2, []byte("x")))
	s.submit(0, s.c[0], strict)
	s.must("both ends", time.Second, s.all(0, 2))
	s.wantStatus(0, 2, engine.OK)
	s.wantStatus(0, 1, engine.StatusNoBuffer)
}

// Clause 22.4: a send's time begins when those before it wait no more. So one that finds a buffer for each in its own
// time is not given up, however long all together wait; the one that does not takes along what is behind it.
func TestPatienceInTurn(t *testing.T) {
	const each = 50 * time.Millisecond
	s := newShared(t)
	s.n[0].e.SetDomain(s.c[0], regmem.Domain(1, 1))
	for token := uint64(1); token <= 6; token++ {
		op := send(token, []byte{byte(token)})
		op.Patience = uint64(each)
		s.submit(0, s.c[0], op)
	}
	var began mono.Time // of the fifth's turn, or a little earlier
	for token := 1; token <= 4; token++ {
		s.rest(each * 4 / 5)
		began = s.now
		s.post(1, s.c[1], 0, uint64(token), 8)
		s.must("a buffer's message", time.Second, s.all(0, token))
		s.wantStatus(0, uint64(token), engine.OK)
	}
	s.must("the end of the fifth", time.Second, s.all(0, 6))
	if took := s.now.Sub(began); took < each || took > each+each/2 {
		t.Errorf("it waited %v of %v", took, each)
	}
	s.wantStatus(0, 5, engine.StatusNoBuffer)
	s.wantStatus(0, 6, engine.StatusStopped)
}
