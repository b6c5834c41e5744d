package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// composed is a message that node 0 composes.
type composed struct {
	r      *rig
	c      engine.ConnID
	name   uint64
	mem    []byte
	region *regmem.Region
}

// compose begins a message of n bytes that says nothing yet: a write, or a send if key is 0.
func (r *rig) compose(c engine.ConnID, name uint64, key regmem.Key, off uint64, n int) *composed {
	r.t.Helper()
	k := &composed{r: r, c: c, name: name, mem: bytes.Repeat([]byte{0xaa}, n)}
	k.region = &regmem.Region{ID: 1, Mem: regmem.Wrap(k.mem)}
	op := engine.Op{Kind: engine.OpWrite, Token: name, Local: k.mem, Region: k.region, Key: key, Off: off}
	if key == 0 {
		op.Kind = engine.OpSend
	}
	if st := r.n[0].e.Compose(c, &op, name); st != engine.OK {
		r.t.Fatalf("compose %d: %v", name, st)
	}
	return k
}

// write puts bytes in their place and marks them.
func (k *composed) write(at int, b []byte) {
	k.r.t.Helper()
	copy(k.mem[at:], b)
	if !k.r.n[0].e.Wrote(k.c, k.name, uint64(at), uint64(len(b))) {
		k.r.t.Fatalf("message %d is not there", k.name)
	}
}

func (k *composed) commit(flags engine.OpFlags, imm uint32, n int) {
	k.r.t.Helper()
	if !k.r.n[0].e.Commit(k.r.now, k.c, k.name, flags, imm, uint64(n)) {
		k.r.t.Fatalf("message %d is not there", k.name)
	}
}

func (k *composed) discard() {
	k.r.t.Helper()
	if !k.r.n[0].e.Discard(k.c, k.name) {
		k.r.t.Fatalf("message %d is not there", k.name)
	}
}

// idle checks that nothing of composed messages is left at either node.
func (r *rig) idle() {
	r.t.Helper()
	r.rest(time.Second)
	for i, n := range r.n {
		if held, records := n.e.HeldMemory(), n.e.Holding().Records; held != 0 || records != 0 {
			r.t.Errorf("node %d holds %d bytes and %d records", i, held, records)
		}
	}
}

// Clause 18: whatever is lost, repeated and late, a message has the newest version of each block when it shows, shows
// whole, once, in its order, and never if it was dropped.
func TestEager(t *testing.T) {
	for _, o := range []rigOptions{{links: 1}, {links: 3, mtu: 9000}, {links: 2, sealed: true}, {links: 2, lazy: true},
		{links: 2, held: 40_000}} {
		t.Run(fmt.Sprintf("%d links, mtu %d, sealed %v, lazy %v, held %d", o.links, o.mtu, o.sealed, o.lazy, o.held),
			func(t *testing.T) {
				for seed := range uint64(8) {
					testEager(t, o, seed)
				}
			})
	}
}

// eagerRun is messages that node 0 composes at random, and what is to become of them.
type eagerRun struct {
	*rig
	c         [2]engine.ConnID
	rng       *rand.Rand
	key       regmem.Key
	mem, want []byte
	bufs      [][]byte
	sends     [][]byte // as they are to arrive
	dropped   map[uint64]bool
}

const eagerMost = 9000

// message composes one.
func (r *eagerRun) message(name uint64) {
	rng, n, place := r.rng, 1+r.rng.IntN(eagerMost-1), int(name)*eagerMost
	to, send := r.key, r.rng.IntN(3) == 0
	if send {
		to = 0
		r.bufs = append(r.bufs, r.post(1, r.c[1], 0, uint64(len(r.bufs)), eagerMost))
		place = 0
	}
	k := r.compose(r.c[0], name, to, uint64(place), n)
	for range rng.IntN(30) {
		at := rng.IntN(n)
		k.write(at, pattern(rng.Int(), 1+rng.IntN(min(n-at, 700))))
		if rng.IntN(3) == 0 {
			r.round()
		}
		if rng.IntN(20) == 0 {
			r.rest(3 * time.Millisecond)
		}
	}
	if rng.IntN(4) == 0 {
		r.dropped[name] = true
		k.discard()
		return
	}
	used := n
	if rng.IntN(4) == 0 {
		used = rng.IntN(n + 1)
	}
	if send {
		r.sends = append(r.sends, bytes.Clone(k.mem[:used]))
	} else {
		copy(r.want[place:], k.mem[:used])
	}
	k.commit(engine.OpFlags(rng.IntN(8)), uint32(name), used)
}

func testEager(t *testing.T, o rigOptions, seed uint64) {
	const messages = 60
	r := &eagerRun{rig: newRig(t, o), rng: rand.New(rand.NewPCG(seed, 18)), dropped: map[uint64]bool{}}
	r.c = r.connect(engine.DialOptions{})
	r.settle()
	rng := r.rng
	var late []flight
	r.pass = func(from int, f *flight) bool {
		if from == 0 && rng.IntN(4) == 0 {
			late = append(late, flight{link: f.link, b: bytes.Clone(f.b)})
			return rng.IntN(2) == 0 // twice, or late
		}
		if len(late) > 6 {
			k := rng.IntN(len(late))
			r.give(1, late[k])
			late = append(late[:k], late[k+1:]...)
		}
		return rng.IntN(12) > 0
	}
	r.mem, r.key = r.export(1, r.c[1], messages*eagerMost, both)
	r.want = bytes.Clone(r.mem)
	for name := range uint64(messages) {
		r.message(name)
	}
	r.must("messages", 20*time.Second, r.all(0, messages))
	r.must("receives", time.Second, r.got(1, len(r.sends)))
	for r.pass = nil; len(late) > 0; late = late[1:] {
		r.give(1, late[0])
	}
	r.rest(time.Second)
	for name := range uint64(messages) {
		st := engine.OK
		if r.dropped[name] {
			st = engine.StatusAborted
		}
		r.wantStatus(0, name, st)
	}
	if !bytes.Equal(r.mem, r.want) {
		at := 0
		for r.mem[at] == r.want[at] {
			at++
		}
		t.Fatalf("seed %d: byte %d of message %d is %#x, want %#x", seed, at%eagerMost,
			at/eagerMost, r.mem[at], r.want[at])
	}
	for i, ev := range r.received(1)[:len(r.sends)] {
		if b := r.bufs[ev.Token][:ev.Msg.Len]; !bytes.Equal(b, r.sends[i]) {
			t.Fatalf("seed %d: message %d has %d bytes, not the %d that were sent", seed, i, len(b), len(r.sends[i]))
		}
	}
	r.n[1].takeNotes(r.c[1])
	n := &r.n[0].e.Count
	if n.Eager.EagerCommitted == 0 || n.Eager.EagerBytes == 0 || o.held > 0 && r.n[1].e.Count.Eager.EagerRefused == 0 {
		t.Errorf("seed %d: %d committed eagerly, %d bytes went ahead, %d were refused", seed, n.Eager.EagerCommitted,
			n.Eager.EagerBytes, r.n[1].e.Count.Eager.EagerRefused)
	}
	r.idle()
}

// with returns what node 0 has to say now: the frames that carry a kind, and the others.
func (r *rig) with(kind wire.Kind) (with, others []flight) {
	for _, f := range r.take(0) {
		if carries(f.b, kind) {
			with = append(with, f)
		} else {
			others = append(others, f)
		}
	}
	return with, others
}

// Clause 18.3: an old version of a block that comes after a newer one, or after the message has shown, changes nothing.
func TestEagerOldVersions(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 64, both)
	r.settle()
	k := r.compose(c[0], 1, key, 0, 64)
	var versions []flight
	for v := range byte(3) {
		k.write(0, bytes.Repeat([]byte{v + 1}, 64))
		stages, _ := r.with(wire.KindStage)
		versions = append(versions, stages...)
	}
	if len(versions) != 3 {
		t.Fatalf("%d frames with versions", len(versions))
	}
	r.give(1, versions[2])
	r.give(1, versions[0])
	k.commit(0, 0, 64)
	commit, _ := r.with(wire.KindCommit)
	if len(commit) != 1 || carries(commit[0].b, wire.KindStage) {
		t.Fatalf("the commit is %d frames, or repeats what has left", len(commit))
	}
	if mem[0] != 0 {
		t.Fatal("the message showed before its commit")
	}
	r.give(1, commit[0])
	if !bytes.Equal(mem, k.mem) {
		t.Fatalf("the message begins with version %d, want the third", mem[0])
	}
	clear(mem)
	r.give(1, versions[1])
	if mem[0] != 0 {
		t.Error("a late version wrote into memory that is its owner's again")
	}
	r.must("completion", time.Second, r.all(0, 1))
	r.idle()
}

// Clause 18.4: a commit that overtakes blocks waits for them; and what comes of an aborted message, late or not, is
// neither shown nor kept.
func TestEagerOvertaken(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 4096, both)
	r.settle()
	k := r.compose(c[0], 1, key, 0, 1000)
	k.write(0, pattern(1, 1000))
	stages, _ := r.with(wire.KindStage)
	k.commit(engine.Notify, 7, 1000)
	commit, _ := r.with(wire.KindCommit)
	r.give(1, commit[0])
	if r.n[1].takeNotes(c[1]); len(r.n[1].notes) > 0 || mem[0] != 0 {
		t.Fatal("the message showed without its bytes")
	}
	for _, f := range stages {
		r.give(1, f)
	}
	if r.n[1].takeNotes(c[1]); len(r.n[1].notes) != 1 || !bytes.Equal(mem[:1000], k.mem) {
		t.Fatalf("%d notifications; the message is in place: %v", len(r.n[1].notes), bytes.Equal(mem[:1000], k.mem))
	}
	if n := r.n[1].notes[0]; n.Imm != 7 || n.Len != 1000 || n.Key != key {
		t.Errorf("notification %+v", n)
	}
	clear(mem)
	k = r.compose(c[0], 2, key, 0, 1000)
	k.write(0, pattern(2, 1000))
	stages, _ = r.with(wire.KindStage)
	k.discard()
	discard, _ := r.with(wire.KindDiscard)
	r.give(1, discard[0])
	for _, f := range stages {
		r.give(1, f)
	}
	r.must("completion", time.Second, r.all(0, 2))
	r.wantStatus(0, 2, engine.StatusAborted)
	if k.region.InFlight != 0 || !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Error("the aborted message showed, or its memory is in use")
	}
	r.idle()
}

// Clauses 18.5, 18.6: without room for a draft the message goes as an operation of its kind, and the number of those
// that a peer may have a draft of is bounded.
func TestEagerRefused(t *testing.T) { inBothForms(t, testEagerRefused) }

func testEagerRefused(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{held: 4000, sealed: sealed})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 30*3000, both)
	r.settle()
	var all []*composed
	for i := range 30 {
		k := r.compose(c[0], uint64(i), key, uint64(i*3000), 3000)
		k.write(100, pattern(i, 1000))
		if i%2 == 0 {
			r.rest(time.Millisecond)
		}
		k.write(0, pattern(i, 300))
		k.commit(engine.OpFlags(i%4), 0, 3000)
		all = append(all, k)
	}
	r.must("messages", time.Second, r.all(0, 30))
	for i, k := range all {
		r.wantStatus(0, uint64(i), engine.OK)
		if !bytes.Equal(mem[i*3000:][:3000], k.mem) {
			t.Errorf("message %d is wrong", i)
		}
	}
	if n := r.n[1].e.Count.Eager.EagerRefused; n < 15 {
		t.Errorf("%d messages were refused", n)
	}
	r.idle()
}

func TestEagerLimits(t *testing.T) {
	r := newRig(t, rigOptions{held: 1 << 20})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 64, both)
	r.settle()
	e, mem := r.n[0].e, make([]byte, engine.MaxEager+1)
	begin := func(name uint64, n int) engine.Status {
		return e.Compose(c[0], &engine.Op{Kind: engine.OpWrite, Token: name, Local: mem[:n], Key: key}, name)
	}
	for n, want := range map[int]engine.Status{0: engine.StatusBounds, len(mem): engine.StatusBounds} {
		if st := begin(99, n); st != want {
			t.Errorf("%d bytes: %v", n, st)
		}
	}
	const most = 16
	for name := range uint64(most) {
		if st := begin(name, engine.MaxEager); st != engine.OK {
			t.Fatalf("message %d: %v", name, st)
		}
		e.Wrote(c[0], name, 0, 1<<60)
	}
	if st := begin(most, 64); st != engine.StatusLimit {
		t.Errorf("one message more: %v", st)
	}
	r.rest(100 * time.Millisecond)
	if held := r.n[1].e.HeldMemory(); held > 1<<19 || held < 1<<18 || r.n[1].e.Count.Eager.EagerRefused == 0 {
		t.Errorf("drafts take %d bytes of a limit of 2^20, and %d were refused", held,
			r.n[1].e.Count.Eager.EagerRefused)
	}
	if e.Wrote(c[0], 99, 0, 1) || e.Commit(r.now, c[0], 99, 0, 0, 1) || e.Discard(c[0], 99) {
		t.Error("something was done to a message that is not there")
	}
	e.Commit(r.now, c[0], 0, 0, 0, uint64(len(mem)))
	r.must("completion", time.Second, r.all(0, 1))
	r.wantStatus(0, 0, engine.StatusBounds)
	e.Commit(r.now, c[0], 1, 0, 0, 65)
	r.must("completion", time.Second, r.all(0, 2))
	r.wantStatus(0, 1, engine.StatusBounds) // outside the export
	e.Close(r.now, c[0])
	r.must("end", time.Second, r.all(0, most))
	for name := range uint64(most - 2) {
		r.wantStatus(0, name+2, engine.StatusClosed)
	}
	r.idle()
}

// A connection that ends takes the messages of both its ends along.
func TestEagerEnds(t *testing.T) {
	for _, by := range []int{0, 1} {
		r := newRig(t, rigOptions{})
		c := r.connect(engine.DialOptions{})
		mem, key := r.export(1, c[1], 4096, both)
		r.settle()
		k := r.compose(c[0], 1, key, 0, 4096)
		k.write(0, pattern(1, 4096))
		r.rest(time.Millisecond)
		sent := r.compose(c[0], 2, 0, 0, 4096) // no buffer is there for it
		sent.write(0, pattern(2, 64))
		r.rest(time.Millisecond)
		sent.commit(0, 0, 4096)
		if r.n[1].e.HeldMemory() < 2*4096 {
			t.Fatal("there are no drafts")
		}
		r.n[by].e.Abort(r.now, c[by], engine.StatusAborted)
		r.must("end", time.Second, r.all(0, 2))
		want := []engine.Status{engine.StatusAborted, engine.StatusReset}[by]
		r.wantStatus(0, 1, want)
		r.wantStatus(0, 2, want)
		if k.region.InFlight+sent.region.InFlight != 0 || mem[0] != 0 {
			t.Error("memory is in use, or written")
		}
		r.idle()
	}
}

// A send that loses patience takes its draft along.
func TestEagerImpatient(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	op := engine.Op{Kind: engine.OpSend, Token: 1, Local: pattern(1, 640), Patience: uint64(5 * time.Millisecond)}
	r.n[0].e.Compose(c[0], &op, 1)
	r.n[0].e.Wrote(c[0], 1, 0, 640)
	r.rest(time.Millisecond)
	r.n[0].e.Commit(r.now, c[0], 1, 0, 0, 640)
	r.must("end", time.Second, r.all(0, 1))
	r.wantStatus(0, 1, engine.StatusNoBuffer)
	r.idle()
}

// Fences, exhaustively: of three composed writes whose commits arrive in any order, blocks before or after.
func TestEagerFences(t *testing.T) {
	const ops, size = 3, 128
	for _, blocksLast := range []bool{false, true} {
		f := newFencer(t, anyOrder, ops, size)
		for _, flags := range flagSets(ops) {
			for _, arrival := range permutations(ops) {
				f.fill++
				own := make([][]flight, ops)
				for i, fl := range flags {
					k := f.compose(f.c[0], f.token, f.op.Key, uint64(i*size), size)
					f.token++
					k.write(0, bytes.Repeat([]byte{f.fill}, size))
					stages, _ := f.with(wire.KindStage)
					k.commit(fl|engine.Notify, uint32(i), size)
					commit, _ := f.with(wire.KindCommit)
					if len(stages) != 1 || len(commit) != 1 {
						t.Fatalf("%d frames of blocks and %d of commits", len(stages), len(commit))
					}
					if own[i] = append(stages, commit...); blocksLast {
						own[i] = append(commit, stages...)
					}
				}
				for i := range own {
					f.give(1, own[i][0])
					own[i] = own[i][1:]
				}
				order, err := f.deliver(own, arrival, flags, false)
				if err != nil || len(order) != ops || !allows(flags, false, order) {
					t.Fatalf("fences %s arrival %v, blocks last %v: applied %v: %v", names(flags), arrival, blocksLast,
						order, err)
				}
			}
		}
		f.idle()
	}
}

// What no honest peer says is malformed, and takes nothing.
func TestEagerForged(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 64, both)
	r.settle()
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 8)})
	like := r.take(0)[0].b
	var f wire.Frame
	if err := f.Decode(like[wire.EthLen:]); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64)
	stage := wire.Segment{Kind: wire.KindStage, Conn: uint32(c[1]), Op: 0, Stamp: 1, Size: 128, Data: block}
	far, longer := stage, stage
	far.Op, longer.Size = 64, 192
	word := wire.Segment{Kind: wire.KindDiscard, Conn: uint32(c[1]), Op: 1 << 20}
	commit := wire.Segment{Kind: wire.KindCommit, Flags: wire.SegFirst | wire.SegLast, Status: uint8(wire.KindWrite),
		Conn: uint32(c[1]), Op: 1, Key: uint64(key), Size: 64, Bytes: 64, Data: make([]byte, 8)}
	none := commit // of a message of which nothing came
	none.From, none.Op = 5, 2
	n := &r.n[1].e.Count
	for i, g := range []*wire.Segment{&stage, &far, &longer, &word, &commit, &none} {
		before, held := n.Reject.RejectedMalformed, r.n[1].e.HeldMemory()
		r.give(1, flight{link: 0, b: forge(like, f.PN+1+uint64(i), g)})
		if bad := n.Reject.RejectedMalformed != before; bad != (i > 0) || bad && g != &none &&
			r.n[1].e.HeldMemory() != held {
			t.Errorf("segment %d: malformed %v, %d bytes held", i, bad, r.n[1].e.HeldMemory())
		}
	}
}

// Numbers of messages that are over are free for others, however they ended.
func TestEagerNumbers(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 64, both)
	r.settle()
	for name := range uint64(200) {
		off := uint64(0)
		if name%5 == 0 {
			off = 1 // refused: outside
		}
		k := r.compose(c[0], name, key, off, 64)
		k.write(0, pattern(int(name), 64))
		r.rest(100 * time.Microsecond)
		if name%2 == 0 {
			k.discard()
		} else {
			k.commit(0, 0, 64)
		}
		r.rest(100 * time.Microsecond)
	}
	if n := r.n[0].e.Count.Eager.EagerBytes; n != 200*64 {
		t.Errorf("%d bytes of 200 blocks of 64 went ahead", n)
	}
	r.idle()
}
