package engine_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// access is one operation of TestAccessRefused, and how it ends.
type access struct {
	name string
	kind engine.OpKind
	key  regmem.Key
	off  uint64
	n    int
	want engine.Status
}

// try makes the i-th access, writes a byte behind it to mem, which has the key good, and checks what became of both.
func (x *access) try(r *rig, c [2]engine.ConnID, i int, mem []byte, good regmem.Key) {
	t := r.t
	before := bytes.Clone(mem)
	buf := pattern(3, 16)
	if x.kind == engine.OpRead {
		buf = make([]byte, 16)
	}
	token := uint64(i)
	r.submit(0, c[0], engine.Op{Kind: x.kind, Flags: engine.Notify, Token: token, Key: x.key, Off: x.off,
		Local: buf[:x.n]})
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.BackwardFence, Token: 1000 + token, Key: good,
		Off: 64, Local: []byte{byte(i)}})
	r.must(x.name, time.Second, r.all(0, 2*i+2))
	if got := r.n[0].done[token]; got != x.want {
		t.Errorf("%s: ended with %v, want %v", x.name, got, x.want)
	}
	if r.n[0].done[1000+token] != engine.OK || mem[64] != byte(i) {
		t.Errorf("%s: the write behind it ended with %v", x.name, r.n[0].done[1000+token])
	}
	if mem[64] = before[64]; x.want != engine.OK && !bytes.Equal(mem, before) {
		t.Errorf("%s: memory changed", x.name)
	}
	r.n[1].notes = nil
	r.n[1].takeNotes(c[1])
	if (len(r.n[1].notes) == 1) != (x.want == engine.OK) {
		t.Errorf("%s: %d notifications", x.name, len(r.n[1].notes))
	}
}

// Clause 6.9: each access that is not allowed gets its own status, nothing of it is applied, the connection lives and
// what stands next to it succeeds.
func TestAccessRefused(t *testing.T) { inBothForms(t, testAccessRefused) }

func testAccessRefused(t *testing.T, sealed bool) {
	const size = 256
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	other := r.connectTo("other", engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	_, foreign := r.export(1, other[1], size, both)
	readOnly, ro := r.export(1, c[1], size, regmem.RemoteRead)
	writeOnly, wo := r.export(1, c[1], size, regmem.RemoteWrite)
	_, revoked := r.export(1, c[1], size, both)
	r.n[1].grants.Revoke(revoked)
	local := pattern(3, 16)
	for i, x := range []access{
		{"write", engine.OpWrite, key, 0, 16, engine.OK},
		{"read", engine.OpRead, key, 0, 16, engine.OK},
		{"key never granted", engine.OpWrite, key + 1, 0, 16, engine.StatusKey},
		{"key zero", engine.OpRead, 0, 0, 16, engine.StatusKey},
		{"key revoked, write", engine.OpWrite, revoked, 0, 16, engine.StatusKey},
		{"key revoked, read", engine.OpRead, revoked, 0, 16, engine.StatusKey},
		{"key of another connection, write", engine.OpWrite, foreign, 0, 16, engine.StatusOwner},
		{"key of another connection, read", engine.OpRead, foreign, 0, 16, engine.StatusOwner},
		{"key of another connection, also out of bounds", engine.OpWrite, foreign, size, 16, engine.StatusOwner},
		{"write to read-only", engine.OpWrite, ro, 0, 16, engine.StatusPermission},
		{"write to read-only, also out of bounds", engine.OpWrite, ro, size, 16, engine.StatusPermission},
		{"read of write-only", engine.OpRead, wo, 0, 16, engine.StatusPermission},
		{"read of read-only", engine.OpRead, ro, 0, 16, engine.OK},
		{"write to write-only", engine.OpWrite, wo, 240, 16, engine.OK},
		{"last bytes", engine.OpWrite, key, size - 16, 16, engine.OK},
		{"one byte past the end, write", engine.OpWrite, key, size - 15, 16, engine.StatusBounds},
		{"one byte past the end, read", engine.OpRead, key, size - 15, 16, engine.StatusBounds},
		{"at the end", engine.OpWrite, key, size, 1, engine.StatusBounds},
		{"nothing at the end", engine.OpWrite, key, size, 0, engine.OK},
		{"nothing at the end, read", engine.OpRead, key, size, 0, engine.OK},
		{"nothing past the end", engine.OpWrite, key, size + 1, 0, engine.StatusBounds},
		{"nothing past the end, read", engine.OpRead, key, size + 1, 0, engine.StatusBounds},
		{"offset 2^64-8, length 8", engine.OpWrite, key, ^uint64(7), 8, engine.StatusBounds},
		{"offset 2^64-8, length 16 wraps", engine.OpWrite, key, ^uint64(7), 16, engine.StatusBounds},
		{"offset 2^64-8, read of 16", engine.OpRead, key, ^uint64(7), 16, engine.StatusBounds},
		{"offset 2^63", engine.OpRead, key, 1 << 63, 16, engine.StatusBounds},
		{"write again", engine.OpWrite, key, 32, 16, engine.OK},
	} {
		x.try(r, c, i, mem, key)
	}
	if !bytes.Equal(readOnly, make([]byte, size)) {
		t.Error("read-only memory changed")
	}
	if !bytes.Equal(writeOnly[240:], local) {
		t.Error("write-only memory was not written")
	}
	if len(r.n[0].closed)+len(r.n[1].closed) != 0 {
		t.Error("a connection was closed over an access error")
	}
}

// A write of several frames, revoked when the first is in place: it ends with the key's status and not one byte lands
// after the revocation.
func TestRevokedUnderWrite(t *testing.T) { inBothForms(t, testRevokedUnderWrite) }

func testRevokedUnderWrite(t *testing.T, sealed bool) {
	const size = 20_000
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	r.settle()
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: 1, Key: key,
		Local: pattern(1, size)})
	frames := r.take(0)
	if len(frames) < 10 {
		t.Fatalf("%d frames", len(frames))
	}
	half := len(frames) / 2
	for _, f := range frames[:half] {
		r.give(1, f)
	}
	r.n[1].e.Placed()
	r.n[1].grants.Revoke(key)
	after := bytes.Clone(mem)
	if bytes.Equal(after, make([]byte, size)) {
		t.Fatal("nothing was in place before the revocation")
	}
	for _, f := range frames[half:] {
		r.give(1, f)
	}
	r.must("the write", time.Second, r.all(0, 1))
	r.wantStatus(0, 1, engine.StatusKey)
	if !bytes.Equal(mem, after) {
		t.Error("memory changed after the revocation")
	}
	if _, ok := r.n[1].e.TakeNotify(c[1]); ok {
		t.Error("a notification of a refused write")
	}
	r.echoWorks(c)
}

// A read revoked while its data is being sent ends with the key's status, at once and with no other traffic to help.
func TestRevokedUnderRead(t *testing.T) { inBothForms(t, testRevokedUnderRead) }

func testRevokedUnderRead(t *testing.T, sealed bool) {
	const size = 400_000
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	copy(mem, pattern(1, size))
	r.settle()
	r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Token: 1, Key: key, Local: make([]byte, size)})
	r.must("data on its way", time.Second, func() bool { return r.n[1].e.Count.Traffic.PayloadSent > 20_000 })
	r.n[1].grants.Revoke(key)
	sent := r.n[1].e.Count.Traffic.PayloadSent
	if sent >= size {
		t.Fatal("the read was sent whole already")
	}
	r.must("the read", 100*time.Millisecond, r.all(0, 1))
	r.wantStatus(0, 1, engine.StatusKey)
	if n := r.n[1].e.Count.Traffic.PayloadSent; n != sent {
		t.Errorf("%d bytes were sent after the revocation", n-sent)
	}
	r.echoWorks(c)
}

// echoWorks checks that the connection still carries operations both ways.
func (r *rig) echoWorks(c [2]engine.ConnID) {
	r.t.Helper()
	for i := range 2 {
		mem, key := r.export(1-i, c[1-i], 8, both)
		token := uint64(1<<40) + uint64(r.now)
		r.submit(i, c[i], engine.Op{Kind: engine.OpWrite, Token: token, Key: key, Local: []byte("alive?!!")})
		r.must("the connection carries operations", time.Second, func() bool { _, ok := r.n[i].done[token]; return ok })
		if r.wantStatus(i, token, engine.OK); string(mem) != "alive?!!" {
			r.t.Errorf("node %d: memory differs", 1-i)
		}
	}
}

// dialEnds dials and returns how it ended and after how long.
func (r *rig) dialEnds(peer, service string, o engine.DialOptions, limit time.Duration) (engine.Event, time.Duration) {
	r.t.Helper()
	start := r.now
	id, err := r.n[0].e.Dial(r.now, peer, service, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.must("the end of a dial", limit, func() bool { _, over := r.n[0].closed[id]; return over })
	ev, took := r.n[0].closed[id], r.now.Sub(start)
	r.pass = nil
	r.rest(100 * time.Millisecond)
	if z := r.n[0].e.TableSizes(); z.Dials != 0 || z.Live != 0 {
		r.t.Errorf("after the dial ended: %+v", z)
	}
	return ev, took
}

func TestDialRefused(t *testing.T) { inBothForms(t, testDialRefused) }

// dialWait is the timeout of the dials of TestDialRefused.
const dialWait = 400 * time.Millisecond

func testDialRefused(t *testing.T, sealed bool) {
	t.Run("no service", func(t *testing.T) {
		r := newRig(t, rigOptions{sealed: sealed})
		ev, took := r.dialEnds("node1", "nobody", engine.DialOptions{}, time.Second)
		if ev.Status != engine.StatusNoService || !strings.Contains(ev.Text, "nobody") || !strings.Contains(ev.Text,
			"node1") || took > 10*time.Millisecond {
			t.Errorf("%v %q after %v", ev.Status, ev.Text, took)
		}
	})
	t.Run("refused with a text", func(t *testing.T) { dialRefusedWithText(t, sealed) })
	t.Run("peer unknown", func(t *testing.T) {
		r := newRig(t, rigOptions{}) // TestStrangers has the sealed form
		ev, took := r.dialEnds("nowhere", "test", engine.DialOptions{Timeout: dialWait}, time.Second)
		if ev.Status != engine.StatusPeerUnknown || !strings.Contains(ev.Text, "nowhere") || took < dialWait ||
			took > dialWait+10*time.Millisecond {
			t.Errorf("%v %q after %v", ev.Status, ev.Text, took)
		}
	})
	t.Run("peer silent", func(t *testing.T) {
		r := newRig(t, rigOptions{sealed: sealed})
		r.rest(10 * time.Millisecond)
		r.pass = func(from int, _ *flight) bool { return from == 0 }
		ev, took := r.dialEnds("node1", "test", engine.DialOptions{Timeout: dialWait}, time.Second)
		if ev.Status != engine.StatusPeerDown || !strings.Contains(ev.Text, "node1") || took < dialWait ||
			took > dialWait+10*time.Millisecond {
			t.Errorf("%v %q after %v", ev.Status, ev.Text, took)
		}
	})
	t.Run("owner never answers", func(t *testing.T) { dialNeverAnswered(t, sealed) })
	t.Run("peer silent in an open session", func(t *testing.T) { dialSilentSession(t, sealed) })
	t.Run("bad arguments", func(t *testing.T) { dialBadArguments(t, sealed) })
}

func dialRefusedWithText(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	r.n[1].e.Listen("picky")
	id, _ := r.n[0].e.Dial(r.now, "node1", "picky", engine.DialOptions{Data: []byte("let me in")})
	asked := false
	r.must("refusal", time.Second, func() bool {
		for _, ev := range r.n[1].events {
			if ev.Kind == engine.EvIncoming && !asked {
				asked = true
				if ev.Service != "picky" || string(ev.Data) != "let me in" || ev.PeerName != "node0" {
					t.Errorf("incoming %+v", ev)
				}
				r.n[1].e.Refuse(r.now, ev.Conn, "not on the list")
			}
		}
		_, over := r.n[0].closed[id]
		return over
	})
	if ev := r.n[0].closed[id]; ev.Status != engine.StatusRefused || ev.Text != "not on the list" {
		t.Errorf("%v %q", ev.Status, ev.Text)
	}
	r.rest(100 * time.Millisecond)
	if z := r.n[1].e.TableSizes(); z.Live != 0 || z.ByRemote != 0 {
		t.Errorf("the refused connection stays at the other end: %+v", z)
	}
}

func dialNeverAnswered(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	r.n[1].e.Listen("slow")
	ev, took := r.dialEnds("node1", "slow", engine.DialOptions{Timeout: dialWait}, time.Second)
	if ev.Status != engine.StatusTimeout || !strings.Contains(ev.Text, "did not accept") || took < dialWait ||
		took > dialWait+10*time.Millisecond {
		t.Errorf("%v %q after %v", ev.Status, ev.Text, took)
	}
	// Who accepts too late learns that nobody is there any more: by Close, or by an error (clause 3.6).
	for _, ev := range r.n[1].events {
		if ev.Kind == engine.EvIncoming && r.n[1].e.Accept(r.now, ev.Conn, nil) == nil {
			r.must("the late acceptance is closed", time.Second,
				func() bool { _, over := r.n[1].closed[ev.Conn]; return over })
		}
	}
	r.rest(100 * time.Millisecond)
	for i := range r.n {
		if z := r.n[i].e.TableSizes(); z.Live != 0 {
			t.Errorf("node %d: %+v", i, z)
		}
	}
}

func dialSilentSession(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2})
	r.connect(engine.DialOptions{})
	r.settle()
	r.pass = func(int, *flight) bool { return false }
	id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: dialWait})
	if err != nil {
		t.Fatal(err)
	}
	r.must("the end of a dial", time.Second, func() bool { _, over := r.n[0].closed[id]; return over })
	ev := r.n[0].closed[id]
	if ev.Status != engine.StatusTimeout || !strings.Contains(ev.Text, `"node1" does not answer on any link`) {
		t.Errorf("%v %q", ev.Status, ev.Text)
	}
}

func dialBadArguments(t *testing.T, sealed bool) {
	e := newRig(t, rigOptions{sealed: sealed}).n[0].e
	for name, err := range map[string]error{
		"no service":        second(e.Dial(0, "node1", "", engine.DialOptions{})),
		"long service":      second(e.Dial(0, "node1", strings.Repeat("s", 65), engine.DialOptions{})),
		"no peer":           second(e.Dial(0, "", "s", engine.DialOptions{})),
		"long peer":         second(e.Dial(0, strings.Repeat("p", 65), "s", engine.DialOptions{})),
		"private data":      second(e.Dial(0, "node1", "s", engine.DialOptions{Data: make([]byte, 513)})),
		"accept of nothing": e.Accept(0, 12345, nil),
		"unknown scheduler": second(e.Dial(0, "node1", "s", engine.DialOptions{Scheduler: "fastest"})),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if e.Submit(0, 12345, &engine.Op{Kind: engine.OpWrite}) {
		t.Error("an operation on no connection was taken")
	}
}

func second(_ engine.ConnID, err error) error { return err }

// Names and private data of the greatest length fit whatever frame size two ends may have (clauses 5.1, 5.2), and while
// they try, others are served.
func TestDialWithMostData(t *testing.T) { inBothForms(t, testDialWithMostData) }

func testDialWithMostData(t *testing.T, sealed bool) {
	for _, mtu := range []int{9000, 1500, 640} {
		r := newRig(t, rigOptions{sealed: sealed, mtu: mtu})
		first := r.connect(engine.DialOptions{})
		mem, key := r.export(1, first[1], 100_000, both)
		r.settle()
		service := strings.Repeat("s", engine.MaxServiceName)
		r.n[1].e.Listen(service)
		id, err := r.n[0].e.Dial(r.now, "node1", service, engine.DialOptions{Data: pattern(1, engine.MaxPrivateData),
			Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		start := r.now
		r.submit(0, first[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: pattern(2, len(mem))})
		r.must("the write on the other connection", time.Second, r.all(0, 1))
		if took := r.now.Sub(start); took > 20*time.Millisecond {
			t.Errorf("MTU %d: a write on the connection next to it took %v", mtu, took)
		}
		incoming := false
		r.until(2*time.Second, func() bool {
			for _, ev := range r.n[1].events {
				incoming = incoming || ev.Kind == engine.EvIncoming && bytes.Equal(ev.Data,
					pattern(1, engine.MaxPrivateData))
			}
			_, over := r.n[0].closed[id]
			return incoming || over
		})
		if !incoming && r.n[0].closed[id].Status != engine.StatusMTU {
			t.Errorf("MTU %d: the request did not arrive and ended with %v %q, want it delivered or %v", mtu,
				r.n[0].closed[id].Status, r.n[0].closed[id].Text, engine.StatusMTU)
		}
	}
}

// Clause 3.2 and 4.6: a frame sent again as it was, and frames for sessions that do not exist, change nothing.
func TestReplay(t *testing.T) { inBothForms(t, testReplay) }

func testReplay(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 8, both)
	var heard []flight
	r.pass = func(from int, f *flight) bool {
		if from == 0 && typeOf(f.b) == wire.TypeData {
			heard = append(heard, flight{link: f.link, b: bytes.Clone(f.b)})
		}
		return true
	}
	for i := range 50 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(i), Key: key,
			Local: []byte{byte(i), 1, 2, 3, 4, 5, 6, 7}})
		r.must("write", time.Second, r.all(0, i+1))
	}
	r.n[1].takeNotes(c[1])
	before, dup := bytes.Clone(mem), r.n[1].e.Count.Loss.FramesDuplicated
	for _, f := range heard {
		r.give(1, f)
	}
	if n := r.n[1].e.Count.Loss.FramesDuplicated - dup; n != uint64(len(heard)) {
		t.Errorf("%d of %d replayed frames counted as duplicates", n, len(heard))
	}
	if !bytes.Equal(mem, before) {
		t.Error("a replayed frame changed memory")
	}
	if _, ok := r.n[1].e.TakeNotify(c[1]); ok {
		t.Error("a replayed frame notified again")
	}
	// The same at a node that knows nothing of the session: answered by Reset, at most 100 a second.
	r.boot(1, 2, rigOptions{sealed: sealed})
	for range 10 {
		for _, f := range heard {
			r.give(1, f)
		}
	}
	resets := 0
	for _, f := range r.take(1) {
		if typeOf(f.b) == wire.TypeReset {
			resets++
		}
	}
	if resets == 0 || resets > 100 {
		t.Errorf("%d resets for %d frames of an unknown session, want 1 to 100", resets, 10*len(heard))
	}
}
