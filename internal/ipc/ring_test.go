package ipc

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func newRings(t testing.TB, depth int) *Rings {
	t.Helper()
	l, err := LayoutFor(depth)
	if err != nil {
		t.Fatal(err)
	}
	r, fd, err := CreateRings(l)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	t.Cleanup(func() { r.Close() })
	return r
}

func genSQE(t *rapid.T) SQE {
	if rapid.IntRange(0, 9).Draw(t, "credit") == 0 {
		return SQE{Op: OpCredit, Conn: rapid.Uint32().Draw(t, "conn"), Imm: rapid.Uint32Range(1, NotifyCredit).Draw(t,
			"imm")}
	}
	e := SQE{Op: rapid.SampledFrom([]uint8{OpWrite, OpRead}).Draw(t, "op"), Conn: rapid.Uint32().Draw(t, "conn"),
		Imm:   rapid.Uint32().Draw(t, "imm"),
		Token: rapid.Uint64().Draw(t, "token"), Key: rapid.Uint64().Draw(t, "key"), RemoteOff: rapid.Uint64().Draw(t,
			"off")}
	if e.Op == OpWrite {
		e.Flags = rapid.Uint8Range(0, 7).Draw(t, "flags")
		e.InlineLen = rapid.Uint8Range(0, MaxInline).Draw(t, "inline")
	} else {
		e.Flags = rapid.Uint8Range(0, 3).Draw(t, "flags")
	}
	if e.InlineLen > 0 {
		copy(e.Inline[:], rapid.SliceOfN(rapid.Byte(), MaxInline, MaxInline).Draw(t, "data"))
		return e
	}
	e.Region = rapid.Uint32().Draw(t, "region")
	e.LocalOff = rapid.Uint64Range(0, 1<<63).Draw(t, "local")
	e.Len = rapid.Uint64Range(0, 1<<62).Draw(t, "len")
	return e
}

func TestEntriesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genSQE(t)
		var b [SQESize]byte
		EncodeSQE(b[:], &e)
		var got SQE
		if err := DecodeSQE(b[:], &got); err != nil || got != e {
			t.Fatalf("sent %+v, got %+v, %v", e, got, err)
		}
		c := CQE{Kind: CQComplete, Status: Status(rapid.Byte().Draw(t, "status")), Conn: e.Conn, Token: e.Token,
			Imm: e.Imm}
		var cb [CQESize]byte
		EncodeCQE(cb[:], &c)
		var cgot CQE
		if err := DecodeCQE(cb[:], &cgot); err != nil || cgot != c {
			t.Fatalf("sent %+v, got %+v, %v", c, cgot, err)
		}
	})
}

func TestEntryValidation(t *testing.T) {
	good := SQE{Op: OpWrite, Conn: 1, Region: 1, Len: 10}
	for name, f := range map[string]func(e *SQE, b []byte){
		"operation 0":        func(e *SQE, b []byte) { b[0] = 0 },
		"operation 15":       func(e *SQE, b []byte) { b[0] = 15 },
		"unknown flag":       func(e *SQE, b []byte) { b[1] = 16 },
		"read done locally":  func(e *SQE, b []byte) { b[0], b[1] = OpRead, FlagLocal },
		"redirect of none":   func(e *SQE, b []byte) { b[0], b[56] = OpRedirect, 0 },
		"redirect, flags":    func(e *SQE, b []byte) { b[0], b[1] = OpRedirect, FlagLocal },
		"redirect, inline":   func(e *SQE, b []byte) { b[0], b[2] = OpRedirect, 1 },
		"end, with a region": func(e *SQE, b []byte) { b[0], b[56] = OpEndRedirect, 0 },
		"end, with a length": func(e *SQE, b []byte) { b[0], b[40] = OpEndRedirect, 0 },
		"inline too long":    func(e *SQE, b []byte) { b[2] = 25 },
		"reserved byte":      func(e *SQE, b []byte) { b[3] = 1 },
		"reserved word":      func(e *SQE, b []byte) { b[12] = 1 },
		"reserved local":     func(e *SQE, b []byte) { b[44] = 1 },
		"read with inline":   func(e *SQE, b []byte) { b[0], b[2] = OpRead, 1 },
		"read with notify":   func(e *SQE, b []byte) { b[0], b[1] = OpRead, FlagNotify },
		"range that wraps":   func(e *SQE, b []byte) { copy(b[48:64], bytes.Repeat([]byte{0xff}, 16)) },
		"credit of nothing":  func(e *SQE, b []byte) { b[0] = OpCredit },
		"credit of too much": func(e *SQE, b []byte) { b[0], b[9] = OpCredit, 2 },
		"credit with flags":  func(e *SQE, b []byte) { b[0], b[1], b[8] = OpCredit, 1, 1 },
	} {
		var b [SQESize]byte
		EncodeSQE(b[:], &good)
		f(&good, b[:])
		var e SQE
		if err := DecodeSQE(b[:], &e); err != ErrEntry {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Two goroutines, all four ends: everything arrives once, in order, through many turns of the rings. Run it with -race.
func TestBothWays(t *testing.T) {
	const total = 20000
	r := newRings(t, 16)
	sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { // the daemon answers each entry by one with the same token
		defer wg.Done()
		var in [8]SQE
		for done := 0; done < total; {
			room, err := cp.Refresh()
			if err != nil {
				t.Error(err)
				return
			}
			n, err := sc.Drain(in[:min(room, len(in))])
			if err != nil {
				t.Error(err)
				return
			}
			for i := range in[:n] {
				cp.Put(&CQE{Kind: CQComplete, Token: in[i].Token, Conn: in[i].Conn})
			}
			cp.Publish()
			if done += n; n == 0 {
				runtime.Gosched()
			}
		}
	}()
	var out [8]CQE
	sent, got := uint64(0), uint64(0)
	for got < total {
		room, err := sp.Room()
		if err != nil {
			t.Fatal(err)
		}
		for ; room > 0 && sent < total && sent-got < 40; room-- {
			sp.Put(&SQE{Op: OpWrite, Token: sent, Conn: uint32(sent) * 3})
			sent++
		}
		sp.Publish()
		n, err := cc.Drain(out[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range out[:n] {
			if e.Token != got || e.Conn != uint32(got)*3 {
				t.Fatalf("entry %d is %+v", got, e)
			}
			got++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
}

// Neither side misses the other's entries when it sleeps: the doorbell rings exactly when a sleep word is taken.
func TestSleepWords(t *testing.T) {
	r := newRings(t, 8)
	sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
	e, c := SQE{Op: OpWrite}, CQE{Kind: CQComplete}
	for _, asleep := range []bool{false, true, false, true} {
		r.SetDaemonAsleep(asleep)
		r.SetClientAsleep(asleep)
		sp.Put(&e)
		if sc.Ready() {
			t.Fatal("visible before Publish")
		}
		if wake := sp.Publish(); wake != asleep || !sc.Ready() {
			t.Fatalf("asleep %v, wake %v", asleep, wake)
		}
		cp.Put(&c)
		if wake := cp.Publish(); wake != asleep || !cc.Ready() {
			t.Fatalf("asleep %v, wake %v", asleep, wake)
		}
		if sp.Publish() || cp.Publish() {
			t.Fatal("an empty Publish wakes")
		}
		sc.Drain(make([]SQE, 1))
		cc.Drain(make([]CQE, 1))
	}
	r.SetClientPolling(true)
	if !r.ClientPolling() {
		t.Fatal("polling is not seen")
	}
}

func TestFullRings(t *testing.T) {
	r := newRings(t, 8)
	sp, sc, cp := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer()
	for i := range 8 {
		if n, err := sp.Room(); n != 8-i || err != nil {
			t.Fatalf("room %d, %v", n, err)
		}
		sp.Put(&SQE{Op: OpWrite})
	}
	if n, _ := sp.Room(); n != 0 {
		t.Fatalf("room %d in a full ring", n)
	}
	sp.Publish()
	var in [3]SQE
	if n, err := sc.Drain(in[:]); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, _ := sp.Room(); n != 3 {
		t.Fatalf("room %d after 3 were read", n)
	}
	for cp.Put(&CQE{Kind: CQComplete}) {
	}
	if cp.Used() != 32 || cp.Room() != 0 {
		t.Fatalf("used %d, room %d", cp.Used(), cp.Room())
	}
}

// A peer that scribbles over an index obtains an error from the other side.
func TestScribbledIndices(t *testing.T) {
	for _, v := range []uint32{9, 1 << 31, ^uint32(0)} {
		r := newRings(t, 8)
		sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
		for range 8 {
			sp.Put(&SQE{Op: OpWrite})
		}
		for _, w := range []int{wordSQTail, wordSQHead, wordCQHead} {
			r.word(w).Store(v)
		}
		r.word(wordCQTail).Store(v + 32)
		if _, err := sc.Drain(make([]SQE, 4)); !errors.Is(err, ErrRing) {
			t.Errorf("submission tail %#x: %v", v, err)
		}
		if _, err := sp.Room(); !errors.Is(err, ErrRing) {
			t.Errorf("submission head %#x: %v", v, err)
		}
		if _, err := cp.Refresh(); !errors.Is(err, ErrRing) {
			t.Errorf("completion head %#x: %v", v, err)
		}
		if _, err := cc.Drain(make([]CQE, 4)); v != ^uint32(0) && !errors.Is(err, ErrRing) {
			t.Errorf("completion tail %#x: %v", v+32, err)
		}
	}
}

func TestLayout(t *testing.T) {
	for _, depth := range []int{0, 1, 7, 9, -8, MaxDepth * 2} {
		if _, err := LayoutFor(depth); err == nil {
			t.Errorf("depth %d accepted", depth)
		}
	}
	for _, l := range []Layout{{}, {8, 8}, {8, 24}, {8, 256}, {9, 36}, {1 << 31, 1 << 31}} {
		if l.Validate() == nil {
			t.Errorf("layout %+v accepted", l)
		}
	}
	for _, l := range []Layout{{8, 16}, {8, 32}, {MaxDepth, 16 * MaxDepth}} { // daemons of other releases (A6.2)
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestMapRingsRefuses(t *testing.T) {
	l, _ := LayoutFor(64)
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := MapRings(fd, l); err == nil {
		t.Error("empty memory accepted")
	}
	unix.Ftruncate(fd, int64(l.Size()))
	if _, err := MapRings(fd, l); err == nil {
		t.Error("memory that can shrink accepted")
	}
	if _, err := MapRings(-1, l); err == nil {
		t.Error("no descriptor accepted")
	}
	if _, err := NewRings(make([]byte, 10), l); err == nil {
		t.Error("ten bytes accepted")
	}
}
