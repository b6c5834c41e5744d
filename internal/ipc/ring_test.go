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
	must(t, err)
	r, fd, err := CreateRings(l)
	must(t, err)
	unix.Close(fd)
	t.Cleanup(func() { r.Close() })
	return r
}

func genSQE(t *rapid.T) SQE {
	if rapid.IntRange(0, 9).Draw(t, "credit") == 0 {
		return SQE{Op: OpCredit, Conn: rapid.Uint32().Draw(t, "conn"), Imm: rapid.Uint32Range(1, NotifyCredit).Draw(t,
			"imm")}
	}
	e := SQE{Op: rapid.SampledFrom([]Op{OpWrite, OpRead}).Draw(t, "op"), Conn: rapid.Uint32().Draw(t, "conn"),
		Imm:   rapid.Uint32().Draw(t, "imm"),
		Token: rapid.Uint64().Draw(t, "token"), Key: rapid.Uint64().Draw(t, "key"), RemoteOff: rapid.Uint64().Draw(t,
			"off")}
	if e.Op == OpWrite {
		e.Flags = Flags(rapid.Uint8Range(0, 7).Draw(t, "flags"))
		e.InlineLen = rapid.Uint8Range(0, MaxInline).Draw(t, "inline")
	} else {
		e.Flags = Flags(rapid.Uint8Range(0, 3).Draw(t, "flags"))
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
		"read done locally":  func(e *SQE, b []byte) { b[0], b[1] = byte(OpRead), byte(FlagLocal) },
		"redirect of none":   func(e *SQE, b []byte) { b[0], b[56] = byte(OpRedirect), 0 },
		"redirect, flags":    func(e *SQE, b []byte) { b[0], b[1] = byte(OpRedirect), byte(FlagLocal) },
		"redirect, inline":   func(e *SQE, b []byte) { b[0], b[2] = byte(OpRedirect), 1 },
		"end, with a region": func(e *SQE, b []byte) { b[0], b[56] = byte(OpEndRedirect), 0 },
		"end, with a length": func(e *SQE, b []byte) { b[0], b[40] = byte(OpEndRedirect), 0 },
		"inline too long":    func(e *SQE, b []byte) { b[2] = 25 },
		"reserved byte":      func(e *SQE, b []byte) { b[3] = 1 },
		"reserved word":      func(e *SQE, b []byte) { b[12] = 1 },
		"reserved local":     func(e *SQE, b []byte) { b[44] = 1 },
		"read with inline":   func(e *SQE, b []byte) { b[0], b[2] = byte(OpRead), 1 },
		"read with notify":   func(e *SQE, b []byte) { b[0], b[1] = byte(OpRead), byte(FlagNotify) },
		"range that wraps":   func(e *SQE, b []byte) { copy(b[48:64], bytes.Repeat([]byte{0xff}, 16)) },
		"credit of nothing":  func(e *SQE, b []byte) { b[0] = byte(OpCredit) },
		"credit of too much": func(e *SQE, b []byte) { b[0], b[9] = byte(OpCredit), 2 },
		"credit with flags":  func(e *SQE, b []byte) { b[0], b[1], b[8] = byte(OpCredit), 1, 1 },
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
		must(t, err)
		for ; room > 0 && sent < total && sent-got < 40; room-- {
			sp.Put(&SQE{Op: OpWrite, Token: sent, Conn: uint32(sent) * 3})
			sent++
		}
		sp.Publish()
		n, err := cc.Drain(out[:])
		must(t, err)
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
	if r.SetClientPolling(Polls); r.ClientPolling() != Polls {
		t.Fatal("polling is not seen")
	}
}

// For what a client polls is its to say (A8.5): for nothing, for anything, or for anything but operations that complete
// well. An entry counts until it is published, and whether it is for the doorbell or for a word (A8.7).
func TestWhatPollersWaitFor(t *testing.T) {
	done, failed, note := CQE{Kind: CQComplete}, CQE{Kind: CQComplete, Status: StatusKey}, CQE{Kind: CQNotify}
	for _, c := range []struct {
		put  []CQE
		by   Polling
		want bool
	}{
		{[]CQE{note}, NotPolling, false},
		{[]CQE{done}, Polls, true},
		{[]CQE{done}, 7, true},
		{[]CQE{done, done}, PollsForPeer, false},
		{[]CQE{failed}, PollsForPeer, true},
		{[]CQE{note}, PollsForPeer, true},
		{[]CQE{note, done}, PollsForPeer, true},
	} {
		for _, word := range []uint8{0, 1, 64} {
			p := newRings(t, 8).CompleteProducer()
			for i := range c.put {
				p.PutFor(&c.put[i], word)
			}
			if got := p.Awaited(c.by); got != c.want {
				t.Errorf("%+v on word %d for one that polls (%d): %v, want %v", c.put, word, c.by, got, c.want)
			}
			if p.Publish(); p.Awaited(PollsForPeer) {
				t.Errorf("%+v on word %d counts after it was published", c.put, word)
			}
		}
	}
}

// A client that dozes is woken for all but operations that complete well, which it finds in the ring later.
func TestDozingClient(t *testing.T) {
	r := newRings(t, 8)
	cp, cc := r.CompleteProducer(), r.CompleteConsumer()
	done := CQE{Kind: CQComplete}
	for _, tc := range []struct {
		name string
		put  []CQE
		wake bool
	}{
		{"an operation", []CQE{done}, false},
		{"several", []CQE{done, done, done}, false},
		{"one that failed", []CQE{{Kind: CQComplete, Status: StatusKey}}, true},
		{"a notification", []CQE{{Kind: CQNotify}}, true},
		{"a notification before an operation", []CQE{{Kind: CQNotify}, done}, true},
		{"a late failure", []CQE{done, {Kind: CQLate, Status: StatusKey}}, true},
		{"a message", []CQE{{Kind: CQReceive}}, true},
		{"the end of a redirection", []CQE{{Kind: CQRedirected}}, true},
		{"an operation after these", []CQE{done}, false},
	} {
		r.SetClientDozing()
		for i := range tc.put {
			if !cp.Put(&tc.put[i]) {
				t.Fatal("the ring is full")
			}
		}
		if wake := cp.Publish(); wake != tc.wake || !cc.Ready() {
			t.Errorf("%s: wakes %v, ready %v", tc.name, wake, cc.Ready())
		}
		if still := r.word(wordClientAsleep).Load() == dozing; still == tc.wake {
			t.Errorf("%s: dozes still %v", tc.name, still)
		}
		if n, err := cc.Drain(make([]CQE, 8)); n != len(tc.put) || err != nil {
			t.Fatalf("%s: %d entries, %v", tc.name, n, err)
		}
		if _, err := cp.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	r.SetClientDozing()
	r.SetClientAsleep(true) // somebody waits now
	cp.Put(&done)
	if !cp.Publish() {
		t.Error("an operation does not wake a client that sleeps")
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
	cp.Publish()
	if n, err := r.CompleteConsumer().Drain(make([]CQE, 40)); n != 32 || err != nil {
		t.Fatalf("%d completions of a full ring, %v", n, err)
	}
	if n, err := cp.Refresh(); n != 32 || cp.Used() != 0 || err != nil {
		t.Fatalf("room %d, used %d, %v", n, cp.Used(), err)
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
		r.word(wordCQTail).Store(v + 24) // one more than there are
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
			t.Errorf("completion tail %#x: %v", v+24, err)
		}
	}
	r := newRings(t, 8) // an index that goes back, or beyond what was published
	sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
	for range 8 {
		sp.Put(&SQE{Op: OpWrite})
		cp.Put(&CQE{Kind: CQComplete})
	}
	sp.Publish()
	cp.Publish()
	sc.Drain(make([]SQE, 3))
	cc.Drain(make([]CQE, 3))
	if n, err := sp.RoomFor(3); n != 3 || err != nil {
		t.Fatalf("room for %d, %v", n, err)
	}
	if n, err := cp.Refresh(); n != 27 || err != nil {
		t.Fatalf("room for %d, %v", n, err)
	}
	cp.Put(&CQE{Kind: CQComplete}) // not published
	for _, v := range []uint32{2, 9} {
		r.word(wordSQHead).Store(v)
		r.word(wordCQHead).Store(v)
		if _, err := sp.RoomFor(4); !errors.Is(err, ErrRing) {
			t.Errorf("submission head %d after 3, of 8: %v", v, err)
		}
		if _, err := cp.Refresh(); !errors.Is(err, ErrRing) {
			t.Errorf("completion head %d after 3, of 8: %v", v, err)
		}
	}
}

// Entries before a malformed one are taken, and it and those behind it are not, however often one asks.
func TestDrainStopsAtMalformed(t *testing.T) {
	r := newRings(t, 8)
	r.Allow(FeatureAtomics)
	sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
	for i := range 4 {
		sp.Put(&SQE{Op: OpWrite, Token: uint64(i)})
		cp.Put(&CQE{Kind: CQComplete, Token: uint64(i)})
	}
	sp.Publish()
	cp.Publish()
	r.sqEntry(2)[3], r.cqEntry(2)[3] = 1, 1
	in, out := make([]SQE, 8), make([]CQE, 8)
	for _, want := range []int{2, 0, 0} {
		if n, err := sc.Drain(in); n != want || !errors.Is(err, ErrEntry) || want > 0 && in[1].Token != 1 {
			t.Errorf("%d submissions before a malformed one, want %d: %v", n, want, err)
		}
		if n, err := cc.Drain(out); n != want || !errors.Is(err, ErrEntry) || want > 0 && out[1].Token != 1 {
			t.Errorf("%d completions before a malformed one, want %d: %v", n, want, err)
		}
	}
	r.sqEntry(2)[3] = 0
	pieces := thePieces(1) // of a feature that is not in force
	EncodeSQE(r.sqEntry(3), &pieces)
	for _, want := range []int{1, 0} {
		if n, err := sc.Drain(in); n != want || !errors.Is(err, ErrEntry) {
			t.Errorf("%d submissions before a foreign one, want %d: %v", n, want, err)
		}
	}
}

// A completion that no daemon writes is refused (A6.11): what a client would take it for is not what happened.
func TestCompletionValidation(t *testing.T) {
	for _, e := range []CQE{
		{Kind: CQComplete, Status: StatusQuota, Conn: 1, Token: 2, Imm: 3, Len: 4, Off: 5},
		{Kind: CQNotify, Conn: 1, Token: 2, Imm: 3, Len: 4, Off: 5},
		{Kind: CQReceive, Conn: 1, Token: 2, Imm: 3, Len: 4, HasImm: true},
		{Kind: CQReceive, Conn: 1, Token: 2, Imm: 3, Len: 4, HasImm: true, Tells: true},
		{Kind: CQReceive, Status: StatusTooLong, Token: 2},
		{Kind: CQLate, Status: StatusKey, Conn: 1, Token: 2},
		{Kind: CQRedirected, Status: StatusKey, Conn: 1, Token: 2, Imm: 3, Len: 4, Off: 5},
	} {
		b, got := [CQESize]byte{}, CQE{HasImm: !e.HasImm}
		EncodeCQE(b[:], &e)
		if err := DecodeCQE(b[:], &got); err != nil || got != e {
			t.Errorf("sent %+v, got %+v, %v", e, got, err)
		}
		for at, bit := range map[int]byte{2: 4, 3: 0x80} {
			b[at] ^= bit
			if DecodeCQE(b[:], &got) == nil {
				t.Errorf("kind %d with a reserved bit of byte %d", e.Kind, at)
			}
			b[at] ^= bit
		}
	}
	for what, e := range map[string]CQE{
		"kind 0": {}, "kind 4": {Kind: 4}, "kind 8": {Kind: 8}, "kind 11": {Kind: 11},
		"a notification that failed":   {Kind: CQNotify, Status: StatusKey},
		"a notification with the bit":  {Kind: CQNotify, HasImm: true},
		"a message with an offset":     {Kind: CQReceive, Off: 1},
		"a write without an immediate": {Kind: CQReceive, Tells: true},
		"late news of success":         {Kind: CQLate},
		"late news with an immediate":  {Kind: CQLate, Status: StatusKey, Imm: 1},
		"late news with a length":      {Kind: CQLate, Status: StatusKey, Len: 1},
		"late news with an offset":     {Kind: CQLate, Status: StatusKey, Off: 1 << 40},
		"a completion with an has-bit": {Kind: CQComplete, HasImm: true},
	} {
		var b [CQESize]byte
		EncodeCQE(b[:], &e)
		if DecodeCQE(b[:], &CQE{}) == nil {
			t.Errorf("%s is taken", what)
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
	for l, want := range map[Layout]int{ // A6.2: 4096 + 64 for each submission + 32 for each completion, in pages
		{8, 32}: 8192, {16, 64}: 8192, {32, 128}: 12288, {64, 128}: 12288, {64, 256}: 16384, {8, 128}: 12288,
	} {
		if l.Size() != want || l.Depth() != int(l.SQ) {
			t.Errorf("%+v has %d bytes, want %d", l, l.Size(), want)
		}
	}
	for _, depth := range []int{MinDepth, MaxDepth} {
		if l, err := LayoutFor(depth); err != nil || l.Depth() != depth {
			t.Errorf("depth %d: %+v, %v", depth, l, err)
		}
	}
}

func TestMapRingsRefuses(t *testing.T) {
	l, _ := LayoutFor(64)
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	defer unix.Close(fd)
	if _, err := MapRings(fd, l); err == nil {
		t.Error("empty memory accepted")
	}
	unix.Ftruncate(fd, int64(l.Size()))
	if _, err := MapRings(fd, l); err == nil {
		t.Error("memory that can shrink accepted")
	}
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, ringSeals)
	if r, err := MapRings(fd, l); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	larger, _ := LayoutFor(128)
	if _, err := MapRings(fd, larger); err == nil {
		t.Error("memory that is shorter than its layout accepted")
	}
	if _, err := MapRings(-1, l); err == nil {
		t.Error("no descriptor accepted")
	}
	if _, err := NewRings(make([]byte, 10), l); err == nil {
		t.Error("ten bytes accepted")
	}
}

// A8.8: of entries that are fewer than a client waits for nobody is told, unless one of them is to be told at once or
// no more follow; Recall tells of them later.
func TestClientWaitsForSeveral(t *testing.T) {
	done, failed, note := CQE{Kind: CQComplete}, CQE{Kind: CQComplete, Status: StatusKey}, CQE{Kind: CQNotify}
	for name, c := range map[string]struct {
		asks uint32
		more bool
		put  []CQE
		wake bool
	}{
		"fewer":                     {3, true, []CQE{done, done}, false},
		"as many":                   {3, true, []CQE{done, done, done}, true},
		"more":                      {3, true, []CQE{done, done, done, done}, true},
		"one for any":               {1, true, []CQE{done}, true},
		"one for an older client":   {0, true, []CQE{done}, true},
		"fewer than there can be":   {1<<31 - 1, true, []CQE{done, done, done, done}, false},
		"fewer, and no more follow": {3, false, []CQE{done}, true},
		"a failure":                 {3, true, []CQE{failed}, true},
		"a notification":            {3, true, []CQE{note}, true},
		"a failure among them":      {5, true, []CQE{done, failed, done}, true},
		"fewer notifications":       {AwaitNotes | 3, false, []CQE{note, done, note, done}, false},
		"as many notifications":     {AwaitNotes | 3, false, []CQE{note, note, note}, true},
		"a message among them":      {AwaitNotes | 3, false, []CQE{note, {Kind: CQReceive}}, true},
		"one of one notification":   {AwaitNotes | 1, false, []CQE{note}, true},
		"an operation, at none":     {AwaitNotes | 3, true, []CQE{done}, true},
	} {
		for _, polls := range []bool{false, true} {
			r := newRings(t, 8)
			cp, cc := r.CompleteProducer(), r.CompleteConsumer()
			cp.More = c.more
			r.SetClientAwaits(c.asks)
			r.SetClientAsleep(!polls)
			for i := range c.put {
				cp.Put(&c.put[i])
			}
			told := polls && cp.Awaited(Polls)
			if rings := cp.Publish(); rings && polls {
				t.Errorf("%s: one that does not sleep is woken", name)
			} else if told = told || rings; told != c.wake || !cc.Ready() || held(cp) == c.wake {
				t.Errorf("%s (polls: %v): told %v, want %v; held %v", name, polls, told, c.wake, held(cp))
			}
			if cp.Recall() == c.wake {
				t.Errorf("%s: recalls %v", name, c.wake)
			}
			if told = polls && cp.Awaited(Polls); !polls {
				told = cp.Publish()
			}
			if !c.wake && !told {
				t.Errorf("%s (polls: %v): not told when recalled", name, polls)
			}
			if cp.Publish(); held(cp) {
				t.Errorf("%s: held when told", name)
			}
		}
	}
}

func held(p *CompleteProducer) bool {
	is, _ := p.Held()
	return is
}

// What a client took does not count, nor is it told of.
func TestWhatWasTakenIsNotTold(t *testing.T) {
	r := newRings(t, 8)
	cp, cc := r.CompleteProducer(), r.CompleteConsumer()
	cp.More = true
	r.SetClientAwaits(2)
	r.SetClientAsleep(true)
	for range 3 {
		cp.Put(&CQE{Kind: CQComplete})
		if cp.Publish() {
			t.Fatal("woken for one of two")
		}
		if n, err := cc.Drain(make([]CQE, 8)); n != 1 || err != nil {
			t.Fatalf("%d entries, %v", n, err)
		}
	}
	if cp.Recall() || cp.Publish() {
		t.Error("woken though it has taken all")
	}
}
