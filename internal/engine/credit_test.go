package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
)

// Clauses 7.2 and 7.3: an owner who takes no notifications stops the peer of that connection after one window, and
// nobody else.
func TestCredit(t *testing.T) { inBothForms(t, testCredit) }

func testCredit(t *testing.T, sealed bool) {
	for _, window := range []int{2, 4, 16, 64} {
		r := newRig(t, rigOptions{sealed: sealed, window: window})
		slow, quick := r.connect(engine.DialOptions{}), r.connectTo("quick", engine.DialOptions{})
		_, slowKey := r.export(1, slow[1], 8, both)
		_, quickKey := r.export(1, quick[1], 8, both)
		next := [2]uint64{0, 1 << 32}
		post := func(c engine.ConnID, key *engine.Op, k int) {
			for r.n[0].e.Room(c) > 0 {
				key.Token, key.Imm = next[k], uint32(next[k])
				r.submit(0, c, *key)
				next[k]++
			}
		}
		ops := [2]*engine.Op{
			{Kind: engine.OpWrite, Flags: engine.Notify, Key: slowKey, Local: []byte("abcdefgh")},
			{Kind: engine.OpWrite, Flags: engine.Notify, Key: quickKey, Local: []byte("abcdefgh")},
		}
		done := func(k int) (n int) {
			for tok := range r.n[0].done {
				if int(tok>>32) == k {
					n++
				}
			}
			return n
		}
		rounds := 0
		r.must("the connection whose owner takes notifications", 5*time.Second, func() bool {
			post(slow[0], ops[0], 0)
			post(quick[0], ops[1], 1)
			if rounds++; rounds%3 == 0 {
				r.n[1].takeNotes(quick[1])
			}
			return done(1) >= 1000
		})
		if n := done(0); n != window {
			t.Errorf("window %d: %d operations completed towards an owner who takes nothing, want one window", window,
				n)
		}
		// One notification taken is room for one more at the latest when all are taken; everything resumes.
		r.n[1].notes = nil
		r.must("resuming", 5*time.Second, func() bool {
			r.n[1].takeNotes(slow[1])
			post(slow[0], ops[0], 0)
			return done(0) >= window+100
		})
		for i, n := range r.n[1].notes {
			if n.Imm != uint32(i) || n.Len != 8 {
				t.Fatalf("window %d: notification %d is %+v", window, i, n)
			}
		}
	}
}

// Credit must come back however few notifications the owner takes at a time.
func TestCreditTakenOneByOne(t *testing.T) { inBothForms(t, testCreditTakenOneByOne) }

func testCreditTakenOneByOne(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, window: 8})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	submitted := 0
	for got := 0; got < 200; {
		for r.n[0].e.Room(c[0]) > 0 {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Imm: uint32(submitted),
				Token: uint64(submitted), Key: key, Local: []byte("abcdefgh")})
			submitted++
		}
		var note engine.Notification
		r.must("a notification", time.Second, func() (ok bool) {
			note, ok = r.n[1].e.TakeNotify(c[1])
			return ok
		})
		if note.Imm != uint32(got) {
			t.Fatalf("notification %d carries %d", got, note.Imm)
		}
		got++
		r.rest(200 * time.Microsecond)
	}
}

// Writes without notification need no owner at all.
func TestNoCreditWithoutNotify(t *testing.T) { inBothForms(t, testNoCreditWithoutNotify) }

func testNoCreditWithoutNotify(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, window: 4})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 8, both)
	n := 0
	r.must("writes", time.Second, func() bool {
		for n < 500 && r.n[0].e.Room(c[0]) > 0 {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(n), Key: key, Local: []byte{byte(n), 0, 0,
				0, 0, 0, 0, 0}})
			n++
		}
		return len(r.n[0].done) == 500
	})
	_ = mem
}
