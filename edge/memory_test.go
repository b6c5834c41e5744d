package edge

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/internal/secure"
)

// What docs/MEMORY.md promises, on daemons over real links. Each test cites the promise it proves.

// memoryForm is a way in which two hosts are joined.
type memoryForm struct {
	name     string
	security string
	spec     lab.Spec
	embedded bool
}

var memoryForms = []memoryForm{
	{"plaintext", "plaintext", lab.Spec{}, false},
	{"plaintext, two bad links", "plaintext", lab.Spec{Links: 2, MTU: 1500, Faults: lab.Faults{Loss: 0.01, Dup: 0.01,
		Reorder: 0.1, ReorderBy: 200 * time.Microsecond}, Seed: 1}, false},
	{"encrypted, two links", "encrypted", lab.Spec{Links: 2}, false},
	{"encrypted, two bad links", "encrypted", lab.Spec{Links: 2, MTU: 1500, Faults: lab.Faults{Loss: 0.01, Dup: 0.01,
		Reorder: 0.1, ReorderBy: 200 * time.Microsecond}, Seed: 2}, false},
	{"embedded, plaintext", "plaintext", lab.Spec{}, true},
	{"embedded, encrypted, two links", "encrypted", lab.Spec{Links: 2, MTU: 1500}, true},
}

// sharedMemory is memory of a server as both sides see it.
type sharedMemory struct {
	out, in *Conn
	local   *Region
	target  *Region
	grant   *Grant
	remote  *RemoteRegion
}

const sharedSize = 1 << 20

// exportedFrom is where the export begins in the region: places are counted from there.
const exportedFrom = 4096

func newSharedMemory(t *testing.T, form memoryForm) *sharedMemory {
	ctx := testContext(t)
	l, err := lab.New(ctx, form.spec)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	var private, public [2]string
	for i := range private {
		private[i], public[i] = newKey()
	}
	var dev [2]*Device
	names := [2]string{"a", "b"}
	for i := range dev {
		h, other := l.Host(i), 1-i
		if form.embedded {
			e := &Embedded{Links: h.LinkNames(), Name: names[i], Security: form.security}
			if form.security == "encrypted" {
				e.Key, e.Peers = private[i], map[string]string{names[other]: public[other]}
			}
			must(t, h.Do(func() (err error) { dev[i], err = Open(ctx, Config{Embedded: e}); return err }))
			t.Cleanup(func() { must(t, dev[i].Close()) })
			continue
		}
		cfg := config.Config{Name: names[i], Socket: t.TempDir() + "/sock", Security: form.security,
			Timing: config.Timing{HelloTime: 50 * time.Millisecond}}
		for _, name := range h.LinkNames() {
			cfg.Links = append(cfg.Links, config.Link{Name: name})
		}
		d := &testHost{t: t, cfg: cfg, place: h}
		if form.security == "encrypted" {
			key, err := secure.ParsePrivateKey(private[i])
			must(t, err)
			d.key, d.cfg.Peers = &key, []config.Peer{{Name: names[other], Key: public[other]}}
		}
		d.start()
		t.Cleanup(d.stop)
		dev[i] = d.open(Config{})
	}
	m := &sharedMemory{}
	m.out, m.in = pairOn(t, ctx, dev[0], dev[1], "memory")
	m.local, err = dev[0].Register(sharedSize)
	must(t, err)
	m.target, err = dev[1].Register(exportedFrom + sharedSize)
	must(t, err)
	m.grant, err = m.target.Export(m.in, "memory", RemoteRead|RemoteWrite, exportedFrom, sharedSize)
	must(t, err)
	m.remote, err = m.out.Import(ctx, "memory")
	must(t, err)
	return m
}

func inEachForm(t *testing.T, forms []memoryForm, f func(t *testing.T, m *sharedMemory)) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) { f(t, newSharedMemory(t, form)) })
	}
}

// pollTime bounds a poll that would be endless if a promise were broken; each look gives way, since the machine may
// have one core.
const pollTime = 15 * time.Second

// poll looks at a word until ok says so of it.
func poll(w *atomic.Uint64, ok func(uint64) bool) error {
	for start, looks := time.Now(), 0; ; looks++ {
		if ok(w.Load()) {
			return nil
		}
		if looks%1024 == 0 && time.Since(start) > pollTime {
			return fmt.Errorf("the word stays %#x", w.Load())
		}
		runtime.Gosched()
	}
}

// repeated is a word whose bytes are all of its number: one that is torn shows.
func repeated(k int) uint64 { return uint64(byte(k)) * 0x0101010101010101 }

// Promise 1: a write of 8 bytes to an aligned place is one store, and a read of 8 aligned bytes is one load.
func TestAlignedWordIsWhole(t *testing.T) { inEachForm(t, memoryForms, testAlignedWordIsWhole) }

func testAlignedWordIsWhole(t *testing.T, m *sharedMemory) {
	ctx := testContext(t)
	const words, rounds = 64, 100
	done := make(chan error, 1)
	var stop atomic.Bool
	looked := uint64(0)
	go func() { // the owner looks while the peer writes
		for !stop.Load() {
			for i := range words {
				if v := wordAt(m.grant.Bytes()[8*i:]).Load(); v != repeated(int(byte(v))) {
					done <- fmt.Errorf("a torn word: %#x", v)
					return
				}
				looked++
			}
			runtime.Gosched()
		}
		done <- nil
	}()
	var ops [words]Op
	for round := range rounds {
		for i := range words {
			wordAt(m.local.Bytes()[8*i:]).Store(repeated(round + i))
			op, err := m.out.Post(ctx, &Work{Kind: Write, Local: m.local, LocalOff: 8 * i, Len: 8, Remote: m.remote,
				RemoteOff: 8 * i})
			must(t, err)
			ops[i] = op
		}
		must(t, WaitAll(ctx, ops[:]))
	}
	stop.Store(true)
	must(t, <-done)
	t.Logf("%d looks at words that %d writes changed", looked, words*rounds)

	stop.Store(false)
	go func() { // the owner writes while the peer reads
		for k := 0; !stop.Load(); k++ {
			for i := range words {
				wordAt(m.grant.Bytes()[8*i:]).Store(repeated(k + i))
			}
			runtime.Gosched()
		}
		done <- nil
	}()
	for range rounds {
		for i := range words {
			op, err := m.out.Post(ctx, &Work{Kind: Read, Local: m.local, LocalOff: 8 * i, Len: 8, Remote: m.remote,
				RemoteOff: 8 * i})
			must(t, err)
			ops[i] = op
		}
		must(t, WaitAll(ctx, ops[:]))
		for i := range words {
			if v := wordAt(m.local.Bytes()[8*i:]).Load(); v != repeated(int(byte(v))) {
				t.Errorf("a torn word was read: %#x", v)
			}
		}
	}
	stop.Store(true)
	<-done
}

// Promise 3: who sees what a backward-fenced write left, or one after a forward-fenced write, sees everything before
// it. The writer goes round a ring of slots, so that each slot is whole when its number is seen; the reader gives it
// back by a variable of this process.
func TestFenceIsSeenByWhoPolls(t *testing.T) { inEachForm(t, memoryForms, testFenceIsSeenByWhoPolls) }

func testFenceIsSeenByWhoPolls(t *testing.T, m *sharedMemory) {
	for _, f := range []struct {
		name       string
		data, word Flags
	}{{"backward", 0, BackwardFence}, {"forward", ForwardFence, 0}} {
		t.Run(f.name, func(t *testing.T) {
			ctx := testContext(t)
			const slots, slot, rounds = 8, 40_000, 60
			bytes := m.grant.Bytes()
			// Each slot has its number, for two words in flight that no fence parts may come in either order.
			number := func(k int) *atomic.Uint64 { return wordAt(bytes[slots*slot+8*(k%slots):]) }
			for i := range slots {
				number(i).Store(0) // nothing is in flight
			}
			failed := make(chan error, 1)
			var read atomic.Uint64
			go func() {
				for k := uint64(1); k <= rounds; k++ {
					err := poll(number(int(k)), func(v uint64) bool { return v >= k })
					at := bytes[int(k%slots)*slot:][:slot]
					for i := 0; i < slot && err == nil; i += 8 {
						if v := wordAt(at[i:]).Load(); v != repeated(int(k)) {
							err = fmt.Errorf("number %d is seen, and byte %d of what was written before is %#x", k, i,
								v)
						}
					}
					if err != nil {
						read.Store(1 << 63)
						failed <- err
						return
					}
					read.Store(k)
				}
				failed <- nil
			}()
			var ops []Op
			for k := uint64(1); k <= rounds; k++ {
				must(t, poll(&read, func(v uint64) bool { return v+slots > k }))
				at, word := int(k%slots)*slot, slots*slot+8*int(k%slots)
				if k > slots {
					must(t, WaitAll(ctx, ops[2*(k-slots)-2:2*(k-slots)])) // the local slot is ours again
				}
				for i := 0; i < slot; i += 8 {
					wordAt(m.local.Bytes()[at+i:]).Store(repeated(int(k)))
				}
				wordAt(m.local.Bytes()[word:]).Store(k)
				data, err := m.out.Post(ctx, &Work{Kind: Write, Flags: f.data, Local: m.local, LocalOff: at,
					Len: slot, Remote: m.remote, RemoteOff: at})
				must(t, err)
				tell, err := m.out.Post(ctx, &Work{
					Kind: Write, Flags: f.word, Local: m.local, LocalOff: word, Len: 8, Remote: m.remote,
					RemoteOff: word,
				})
				must(t, err)
				ops = append(ops, data, tell)
			}
			must(t, WaitAll(ctx, ops))
			must(t, <-failed)
		})
	}
}

// Promises 4 and 5: when a notification is taken every byte of its write is in place, and it says where; when an
// operation is done its bytes are at the peer, for whoever is told by whatever other way.
func TestNotificationFollowsItsBytes(t *testing.T) {
	inEachForm(t, memoryForms, testNotificationFollowsItsBytes)
}

func testNotificationFollowsItsBytes(t *testing.T, m *sharedMemory) {
	ctx := testContext(t)
	const slots, rounds = 8, 25
	const slot = sharedSize / slots
	for round := range rounds {
		var ops []Op
		for i := range slots {
			n := 1 + (round*7919+i*slot/3)%(slot-1)
			at := i*slot + round%(slot-n)
			for j := range n {
				m.local.Bytes()[at+j] = byte(round + i + 1)
			}
			op, err := m.out.Post(ctx, &Work{Kind: Write, Flags: Notify, Imm: uint32(i), Local: m.local,
				LocalOff: at, Len: n, Remote: m.remote, RemoteOff: at})
			must(t, err)
			ops = append(ops, op)
		}
		for range slots {
			n, err := m.in.WaitNotify(ctx)
			must(t, err)
			i := int(n.Imm)
			wantLen := 1 + (round*7919+i*slot/3)%(slot-1)
			if n.Grant != m.grant || n.Len != wantLen || n.Offset != i*slot+round%(slot-wantLen) {
				t.Fatalf("notification %+v of %d bytes in slot %d", n, wantLen, i)
			}
			for j, b := range n.Grant.Bytes()[n.Offset:][:n.Len] {
				if b != byte(round+i+1) {
					t.Fatalf("byte %d of %d is not in place when the write is notified", j, n.Len)
				}
			}
		}
		at := round * 8
		wordAt(m.local.Bytes()[at:]).Store(repeated(round + 1))
		op, err := m.out.Post(ctx, &Work{Kind: Write, Local: m.local, LocalOff: at, Len: 8, Remote: m.remote,
			RemoteOff: at})
		must(t, err)
		must(t, op.Wait(ctx))
		if v := wordAt(m.grant.Bytes()[at:]).Load(); v != repeated(round+1) {
			t.Fatalf("the write is done and its word is %#x", v)
		}
		must(t, WaitAll(ctx, ops))
	}
}

// A notification that overtakes the answer to its export, on its way by the control socket, waits for it: it never
// lacks its grant.
func TestNotificationWaitsForItsGrant(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	ctx := testContext(t)
	g := &p.in.grants
	g.begin() // as if the export of p.grant were not answered
	g.drop(p.grant.key)
	op, err := p.out.Post(ctx, &Work{Kind: Write, Flags: Notify, Inline: []byte{1}, Remote: p.remote, RemoteOff: 9})
	must(t, err)
	must(t, op.Wait(ctx))
	got := make(chan Notification, 1)
	go func() {
		n, err := p.in.WaitNotify(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- n
	}()
	eventually(t, "the notification is being taken", 10*time.Second, func() bool {
		return p.in.notes.empty() &&
			op.Done()
	})
	select {
	case n := <-got:
		t.Fatalf("taken before its grant is known: %+v", n)
	default:
	}
	g.end(p.grant)
	if n := <-got; n.Grant != p.grant || n.Offset != 9 {
		t.Errorf("notification %+v", n)
	}
	must(t, p.grant.Revoke())
	if len(g.byKey) != 0 {
		t.Error("a revoked export is remembered")
	}
}
