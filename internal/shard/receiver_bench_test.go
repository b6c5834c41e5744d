package shard

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/idle"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// feed is a driver whose receive queue is filled by hand. Receiving takes no time, so that what is measured is what
// comes after it.
type feed struct {
	linkdrv.Driver
	next   atomic.Pointer[[][]byte] // frames that arrive together
	frames [][]byte
}

func (f *feed) FD() int { return -1 }

func (f *feed) Recv(dst [][]byte) (int, error) {
	if len(f.frames) == 0 {
		p := f.next.Swap(nil)
		if p == nil {
			return 0, nil
		}
		f.frames = *p
	}
	n := copy(dst, f.frames)
	f.frames = f.frames[n:]
	return n, nil
}

// rxBench is a sender's engine and a receiving shard that take turns: what the sender has to send is made first, then
// received, then answered.
type rxBench struct {
	sender *engine.Endpoint
	shard  *Shard
	feeds  []*feed
	batch  engine.Batches
	now    mono.Time
	conn   engine.ConnID // the sender's
	op     engine.Op
	grants *regmem.Table
	memory []byte // the receiver's
	sent   int    // operations
	done   int
	frames [][][]byte // of each link, made
	store  [][]byte   // what they lie in
	one    [9100]byte
}

const (
	rxMemory = 64 << 20
	// of the engines' clock, which knows no other time: how much is under way does not depend on the machine
	turnTime = 100 * time.Microsecond
)

func newRxBench(t testing.TB, sealed bool, links, helpers int) *rxBench {
	t.Helper()
	b := &rxBench{now: mono.Now().Add(-time.Hour), memory: make([]byte, rxMemory)}
	for i := 0; i < len(b.memory); i += 4096 {
		b.memory[i] = 1
	}
	keys := [2]secure.PrivateKey{{1}, {2}}
	profile, err := flowctl.ProfileByName("")
	if err != nil {
		t.Fatal(err)
	}
	profile.Window, profile.Congestion = 4096, flowctl.FixedWindow(4096)
	b.grants = regmem.NewTable(rand.Reader)
	rs := &receivers{}
	var ends [2]*engine.Endpoint
	for i := range ends {
		cfg := engine.Config{Node: engine.NodeID{7: byte(i + 1)}, Name: fmt.Sprint("n", i), Epoch: 1,
			Seed: uint64(i + 1), Framing: linkdrv.Framing(0), Profile: profile, Checksum: engine.ChecksumFull,
			Grants: b.grants}
		if i == 1 && helpers > 0 {
			cfg.Placer = rs
		}
		if i == 0 {
			cfg.Grants = regmem.NewTable(rand.Reader)
		}
		if sealed {
			peers, err := secure.NewPeers(secure.Peer{Name: fmt.Sprint("n", 1-i), Key: keys[1-i].Public()})
			if err != nil {
				t.Fatal(err)
			}
			cfg.Secure = secure.NewNode(keys[i], peers)
			cfg.Node = cfg.Secure.Public.Node()
		}
		if ends[i], err = engine.New(cfg); err != nil {
			t.Fatal(err)
		}
	}
	b.sender = ends[0]
	box, err := newMailbox()
	if err != nil {
		t.Fatal(err)
	}
	b.shard = &Shard{eng: ends[1], box: box, links: linkSet{lends: helpers > 0}}
	if helpers > 0 {
		b.shard.links.receivers = rs
		if err := rs.start(b.shard, helpers); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, l := range b.shard.links.active {
			b.shard.recall(b.now, l)
		}
		if helpers > 0 {
			rs.stop()
		}
		box.close(0)
	})
	for i := range links {
		b.batch.Set(i, engine.NewBatch(64, 9014))
		f := &feed{}
		b.feeds, b.frames = append(b.feeds, f), append(b.frames, nil)
		b.shard.links.active = append(b.shard.links.active, &Link{index: i, drv: f, take: recvUsual,
			info: linkdrv.Info{MTU: 9000}})
		for k, e := range ends {
			if err := e.SetLink(b.now, i, engine.LinkConfig{Name: fmt.Sprint("l", i),
				Addr: frame.Ether([6]byte{2, 0, 0, 0, byte(i),
					byte(k)}), MTU: 9000, RxSlots: 4096}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

// make makes what the sender has to send, and returns how many frames that are.
func (b *rxBench) make() (frames int) {
	for b.conn != 0 && b.sent-b.done < 200 && b.sender.Submit(b.now, b.conn, &b.op) {
		b.sent++
		b.op.Off = (b.op.Off + uint64(len(b.op.Local))) % rxMemory
	}
	for i := range b.frames {
		b.frames[i] = b.frames[i][:0]
	}
	b.poll(b.sender, func(link int, f *frame.Tx) {
		frames++
		if frames > len(b.store) {
			b.store = append(b.store, make([]byte, 0, 9100))
		}
		b.frames[link] = append(b.frames[link], f.AppendTo(b.store[frames-1][:0]))
	})
	return frames
}

// receive has the shard receive it.
func (b *rxBench) receive(frames int) {
	if rs := b.shard.links.receivers; rs != nil {
		for _, r := range rs.all {
			r.core = idle.Contention{} // whose pauses are long by the engines' clock
		}
	}
	want := b.shard.eng.Count.Traffic.FramesReceived + uint64(frames)
	for i, f := range b.feeds {
		if len(b.frames[i]) > 0 {
			f.next.Store(&b.frames[i])
		}
	}
	for b.shard.eng.Count.Traffic.FramesReceived < want {
		b.shard.receive(b.now)
	}
}

// answer brings the sender what the shard answers.
func (b *rxBench) answer(t testing.TB) {
	b.now = b.now.Add(turnTime)
	b.poll(b.shard.eng, func(link int, f *frame.Tx) {
		b.sender.Handle(b.now, link, engine.Whole(f.AppendTo(b.one[:0])))
	})
	var ev engine.Event
	for b.sender.PollEvent(&ev) {
		switch ev.Kind {
		case engine.EvConnected:
			b.conn = ev.Conn
		case engine.EvComplete:
			if b.done++; ev.Status != engine.OK {
				t.Fatal(ev.Status)
			}
		}
	}
	for b.shard.eng.PollEvent(&ev) {
		if ev.Kind == engine.EvIncoming {
			if err := b.shard.eng.Accept(b.now, ev.Conn, nil); err != nil {
				t.Fatal(err)
			}
			key, err := b.grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(b.memory)}, uint64(ev.Conn),
				regmem.RemoteWrite, 0, rxMemory)
			if err != nil {
				t.Fatal(err)
			}
			b.op = engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 1<<20)}
			rand.Read(b.op.Local)
		}
	}
}

func (b *rxBench) poll(e *engine.Endpoint, each func(link int, f *frame.Tx)) {
	if e.NextTimeout() <= b.now {
		e.HandleTimeout(b.now)
	}
	for e.PollTransmit(b.now, &b.batch) > 0 {
		for link, f := range b.batch.All() {
			each(link, f)
		}
		b.batch.Reset()
	}
}

// connect returns once there is a connection.
func (b *rxBench) connect(t testing.TB) {
	b.shard.eng.Listen("m")
	if _, err := b.sender.Dial(b.now, "n1", "m", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	for end := b.now.Add(mostWait); b.conn == 0; {
		if b.now > end {
			t.Fatal("no connection")
		}
		b.receive(b.make())
		b.answer(t)
	}
}

// Received bytes are the same however many threads receive, and links are lent.
func TestReceive(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		for _, helpers := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("sealed=%v,receivers=%d", sealed, helpers), func(t *testing.T) {
				b := newRxBench(t, sealed, 2, helpers)
				b.connect(t)
				for b.done < 64 {
					b.receive(b.make())
					b.answer(t)
				}
				for at := 0; at < rxMemory; at += 1 << 20 {
					if !bytes.Equal(b.memory[at:at+1<<20], b.op.Local) {
						t.Fatalf("MiB %d is not what was sent", at>>20)
					}
				}
				if n := b.shard.eng.Count.Placing.FramesFromReaders; (n > 0) != (helpers > 0) {
					t.Errorf("%d frames were taken by receivers", n)
				}
			})
		}
	}
}

// BenchmarkReceive is what a shard alone, and with receivers, makes of frames that have arrived: two links of one
// connection, writes of 1 MiB.
func BenchmarkReceive(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		for _, helpers := range []int{0, 1} {
			b.Run(fmt.Sprintf("sealed=%v/receivers=%d", sealed, helpers), func(b *testing.B) {
				r := newRxBench(b, sealed, 2, helpers)
				r.connect(b)
				b.ReportAllocs()
				frames, turns := 0, 0
				for before := r.shard.eng.Count.Traffic.PayloadReceived; b.Loop(); {
					b.StopTimer()
					r.answer(b)
					n := r.make()
					frames, turns = frames+n, turns+1
					b.SetBytes(int64(r.shard.eng.Count.Traffic.PayloadReceived-before) / int64(turns))
					b.StartTimer()
					r.receive(n)
				}
				b.ReportMetric(float64(frames)/float64(turns), "frames/op")
				b.ReportMetric(float64(r.shard.eng.Count.Placing.FramesFromReaders)/float64(frames), "lent")
			})
		}
	}
}
