package linkdrv

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/vishvananda/netlink"
)

// scatterPair opens both ends of a fresh veth with drivers that scatter.
func scatterPair(t testing.TB, mtu int) (tx Driver, rx Scatterer) {
	t.Helper()
	namespace(t)
	veth(t, mtu)
	tx = open(t, "a0", Options{Kind: KindMmsg})
	rx, ok := open(t, "b0", Options{Kind: KindMmsg}).(Scatterer)
	if !ok {
		t.Fatal("the mmsg driver does not scatter")
	}
	return tx, rx
}

// frameOf makes a frame of n bytes in all, with contents that differ by seed.
func frameOf(tx, rx Driver, seed, n int) []byte {
	f := header(tx, rx, n-HeaderLen)
	rng := rand.New(rand.NewPCG(uint64(seed), 5))
	for i := HeaderLen; i < n; i++ {
		f[i] = byte(rng.Uint32())
	}
	return f
}

func sendAll(t testing.TB, tx Driver, frames ...[]byte) {
	t.Helper()
	out := make([]TxFrame, len(frames))
	for i, f := range frames {
		out[i].Head = f
	}
	if n, err := tx.Send(out); n != len(out) || err != nil {
		t.Fatal(n, err)
	}
}

// slotsIn cuts slots of the given lengths out of one memory, a canary byte between them.
func slotsIn(lens ...int) (mem []byte, slots [][]byte) {
	total := 1
	for _, n := range lens {
		total += n + 1
	}
	mem = bytes.Repeat([]byte{0xee}, total)
	at := 1
	for _, n := range lens {
		slots = append(slots, mem[at:at+n:at+n])
		at += n + 1
	}
	return mem, slots
}

// Every byte of a frame is in exactly one piece, the pieces are where they should be, nothing else is touched, and Join
// restores the frame.
func TestRecvScatter(t *testing.T) {
	tx, rx := scatterPair(t, 1500)
	for _, c := range []struct {
		name       string
		size, slot int
		head, body int
	}{
		{"fits", Split + 1000, 1000, Split, 1000},
		{"one byte less", Split + 999, 1000, Split, 999},
		{"longer than the slot", Split + 1300, 1000, Split, 1000},
		{"one byte longer", Split + 1001, 1000, Split, 1000},
		{"one byte of payload", Split + 1, 1000, Split, 1},
		{"slot of one byte", Split + 1000, 1, Split, 1},
		{"head only", Split, 1000, Split, 0},
		{"shorter than the head", Split - 1, 1000, Split - 1, 0},
		{"shortest", 60, 1000, 60, 0},
		{"longest", HeaderLen + 1500, 1400, Split, 1400},
		{"longest, slot as long", HeaderLen + 1500, HeaderLen + 1500 - Split, Split, HeaderLen + 1500 - Split},
		{"longest, slot longer", HeaderLen + 1500, 4000, Split, HeaderLen + 1500 - Split},
	} {
		want := frameOf(tx, rx, c.size, c.size)
		sendAll(t, tx, want)
		await(t, rx, 2000)
		mem, slots := slotsIn(c.slot, 100) // the second stays empty
		before := bytes.Clone(mem)
		var got [RecvBatch]RxFrame
		n, err := rx.RecvScatter(got[:], slots)
		if n != 1 || err != nil {
			t.Fatalf("%s: %d frames, %v", c.name, n, err)
		}
		f := &got[0]
		if len(f.Head) != c.head || len(f.Body) != c.body || len(f.Rest) != c.size-c.head-c.body {
			t.Errorf("%s: pieces of %d, %d and %d bytes", c.name, len(f.Head), len(f.Body), len(f.Rest))
		}
		if all := append(append(bytes.Clone(f.Head), f.Body...), f.Rest...); !bytes.Equal(all, want) {
			t.Errorf("%s: the pieces are not the frame", c.name)
		}
		if c.body > 0 && address(f.Body) != address(slots[0]) {
			t.Errorf("%s: the body is not in the slot", c.name)
		}
		copy(before[1:], want[c.head:c.head+c.body])
		if !bytes.Equal(mem, before) {
			t.Errorf("%s: memory beside the body changed", c.name)
		}
		if !bytes.Equal(f.Join(), want) {
			t.Errorf("%s: joined, it is another frame", c.name)
		}
	}
}

// A batch: the i-th frame in the i-th slot, no more frames than slots, the others next time, by either way of
// receiving.
func TestRecvScatterBatch(t *testing.T) {
	tx, rx := scatterPair(t, 1500)
	var frames [][]byte
	for i := range RecvBatch + 8 {
		frames = append(frames, frameOf(tx, rx, i, 70+37*i))
	}
	sendAll(t, tx, frames...)
	await(t, rx, 2000)
	var got [2 * RecvBatch]RxFrame
	at := 0
	take := func(lens ...int) {
		t.Helper()
		_, slots := slotsIn(lens...)
		n, err := rx.RecvScatter(got[:], slots)
		if n != min(len(lens), RecvBatch) || err != nil {
			t.Fatalf("%d slots: %d frames, %v", len(lens), n, err)
		}
		for i := n - 1; i >= 0; i-- { // in any order, and all of them
			if !bytes.Equal(got[i].Join(), frames[at+i]) {
				t.Errorf("frame %d joined is another", at+i)
			}
		}
		at += n
	}
	take(500)
	take(1, 2000, 64)
	if n, err := rx.RecvScatter(got[:], nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if f := receive(t, rx, 1)[0]; !bytes.Equal(f, frames[at]) {
		t.Error("an ordinary Recv between gave another frame")
	}
	at++
	lens := make([]int, RecvBatch+5)
	for i := range lens {
		lens[i] = 1 + 50*i
	}
	take(lens...)
	for _, f := range receive(t, rx, len(frames)-at) {
		if !bytes.Equal(f, frames[at]) {
			t.Errorf("frame %d is another", at)
		}
		at++
	}
	_, slots := slotsIn(100)
	if n, err := rx.RecvScatter(got[:], slots); n != 0 || err != nil {
		t.Fatalf("from an empty queue: %d, %v", n, err)
	}
}

// A frame longer than the driver's buffers is counted and dropped, whether or not the slot gave it room; its neighbours
// arrive in the slots of their own turn.
func TestRecvScatterTruncated(t *testing.T) {
	tx, rx := scatterPair(t, 1500)
	for _, name := range []string{"a0", "b0"} {
		must(t, netlink.LinkSetMTU(link(t, name), 6000))
	}
	first, last := frameOf(tx, rx, 1, 500), frameOf(tx, rx, 4, 600)
	sendAll(t, tx, first, frameOf(tx, rx, 2, 3000), frameOf(tx, rx, 3, 5000), last)
	await(t, rx, 2000)
	mem, slots := slotsIn(400, 3000, 10, 700)
	var got [RecvBatch]RxFrame
	n, err := rx.RecvScatter(got[:], slots)
	if n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if address(got[1].Body) != address(slots[3]) {
		t.Error("the last frame is not in the last slot")
	}
	if !bytes.Equal(got[0].Join(), first) || !bytes.Equal(got[1].Join(), last) {
		t.Error("the frames that fit are damaged")
	}
	for at, i := 0, 0; i < len(slots); i++ { // canaries
		if mem[at] != 0xee {
			t.Errorf("the byte before slot %d was overwritten", i)
		}
		at += len(slots[i]) + 1
	}
	if s, _ := rx.Stats(); s.Truncated != 2 {
		t.Errorf("%d frames counted as truncated, want 2", s.Truncated)
	}
}

func TestRecvScatterNoAllocations(t *testing.T) {
	tx, rx := scatterPair(t, 1500)
	frames := make([]TxFrame, RecvBatch)
	for i := range frames {
		frames[i] = TxFrame{Head: header(tx, rx, 64), Bulk: make([]byte, 1000), Tail: make([]byte, 10)}
	}
	lens := make([]int, RecvBatch)
	for i := range lens {
		lens[i] = 1000
	}
	_, slots := slotsIn(lens...)
	got := make([]RxFrame, RecvBatch)
	total := 0
	if a := testing.AllocsPerRun(200, func() {
		if n, err := tx.Send(frames); n != len(frames) || err != nil {
			t.Fatal(n, err)
		}
		for range 2 { // the second finds nothing
			n, err := rx.RecvScatter(got, slots)
			must(t, err)
			for i := range got[:n] {
				total += len(got[i].Join())
			}
		}
	}); a != 0 {
		t.Errorf("%v allocations per batch", a)
	}
	if total == 0 {
		t.Error("nothing was received")
	}
}
