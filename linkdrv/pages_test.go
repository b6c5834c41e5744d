package linkdrv

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// pagePair opens both ends of a fresh veth, the second with a driver that receives at page boundaries.
func pagePair(t testing.TB, mtu int) (tx Driver, rx Scatterer) {
	t.Helper()
	namespace(t)
	veth(t, mtu)
	tx = open(t, "a0", Options{Kind: KindMmsg})
	rx = open(t, "b0", Options{Kind: KindMmsg, Pages: true}).(Scatterer)
	if tx.Info().Pages || !rx.Info().Pages {
		t.Fatal("Info does not say which driver receives at page boundaries")
	}
	return tx, rx
}

// pagesIn returns n slots of so many bytes, each at the start of a page, and all memory around them.
func pagesIn(n, size int) (mem []byte, slots [][]byte) {
	page := os.Getpagesize()
	mem = bytes.Repeat([]byte{0xee}, (2*n+1)*alignUp(size, page)+page)
	at := page - int(address(mem)%uintptr(page))
	for range n {
		slots = append(slots, mem[at:at+size:at+size])
		at += 2 * alignUp(size, page)
	}
	return mem, slots
}

// Frames of every length arrive whole and contiguous from the start of a page on.
func TestPagesRecv(t *testing.T) {
	for _, mtu := range []int{1500, 4000, 9000} {
		tx, rx := pagePair(t, mtu)
		var sent [][]byte
		for i, n := range []int{60, 78, 79, 1000, HeaderLen + mtu - 1, HeaderLen + mtu, 64} {
			sent = append(sent, frameOf(tx, rx, i, n))
		}
		sendAll(t, tx, sent...)
		await(t, rx, 2000)
		var dst [RecvBatch][]byte
		n, err := rx.Recv(dst[:])
		if n != len(sent) || err != nil {
			t.Fatal(n, err)
		}
		for i, f := range dst[:n] {
			if !bytes.Equal(f, sent[i]) {
				t.Errorf("MTU %d: frame %d differs", mtu, i)
			}
			if at := address(f) % uintptr(os.Getpagesize()); at != 0 {
				t.Errorf("MTU %d: frame %d begins %d bytes into a page", mtu, i, at)
			}
		}
	}
}

// A slot takes a frame from its Ethernet header on, the rest is the driver's, nothing beside is touched, and Join
// restores the frame.
func TestPagesRecvScatter(t *testing.T) {
	tx, rx := pagePair(t, 9000)
	const slot = 8192
	for _, c := range []struct {
		name           string
		size, in, rest int
	}{
		{"two pages of payload", Split + 8192, 8192, Split},
		{"with a tail", Split + 8192 + 40, 8192, Split + 40},
		{"as long as the slot", 8192, 8192, 0},
		{"one byte longer", 8193, 8192, 1},
		{"acknowledgement", 100, 100, 0},
		{"longest", HeaderLen + 9000, 8192, HeaderLen + 9000 - 8192},
	} {
		want := frameOf(tx, rx, c.size, c.size)
		sendAll(t, tx, want)
		await(t, rx, 2000)
		mem, slots := pagesIn(2, slot)
		before := bytes.Clone(mem)
		var got [RecvBatch]RxFrame
		n, err := rx.RecvScatter(got[:], slots)
		if n != 1 || err != nil {
			t.Fatalf("%s: %d frames, %v", c.name, n, err)
		}
		f := &got[0]
		if len(f.Head) != c.in || len(f.Body) != 0 || len(f.Rest) != c.rest || address(f.Head) != address(slots[0]) {
			t.Errorf("%s: pieces of %d, %d and %d bytes", c.name, len(f.Head), len(f.Body), len(f.Rest))
		}
		copy(before[address(slots[0])-address(mem):], want[:c.in])
		if !bytes.Equal(mem, before) {
			t.Errorf("%s: memory beside the slot changed", c.name)
		}
		if !bytes.Equal(f.Join(), want) {
			t.Errorf("%s: joined, it is another frame", c.name)
		}
	}
	var batch [][]byte // and an ordinary Recv meanwhile
	for i := range RecvBatch + 2 {
		batch = append(batch, frameOf(tx, rx, i, 70+37*i))
	}
	sendAll(t, tx, batch...)
	await(t, rx, 2000)
	_, slots := pagesIn(RecvBatch, slot)
	var got [RecvBatch]RxFrame
	if n, err := rx.RecvScatter(got[:], slots[:1]); n != 1 || err != nil || !bytes.Equal(got[0].Join(), batch[0]) {
		t.Fatal(n, err)
	}
	if f := receive(t, rx, 1)[0]; !bytes.Equal(f, batch[1]) {
		t.Error("an ordinary Recv between gave another frame")
	}
	n, err := rx.RecvScatter(got[:], slots)
	if n != RecvBatch || err != nil {
		t.Fatal(n, err)
	}
	for i := range got[:n] {
		if !bytes.Equal(got[i].Join(), batch[i+2]) {
			t.Errorf("frame %d joined is another", i)
		}
	}
}

// A slot that could take any frame leaves nothing of a longest one behind.
func TestPagesLongSlot(t *testing.T) {
	tx, rx := pagePair(t, 1500)
	want := frameOf(tx, rx, 3, HeaderLen+1500)
	sendAll(t, tx, want)
	await(t, rx, 2000)
	_, slots := pagesIn(1, 4096)
	var got [1]RxFrame
	if n, err := rx.RecvScatter(got[:], slots); n != 1 || err != nil || !bytes.Equal(got[0].Join(), want) {
		t.Fatal(n, err)
	}
}

func TestPagesNoAllocations(t *testing.T) {
	tx, rx := pagePair(t, 9000)
	frames := make([]TxFrame, RecvBatch)
	for i := range frames {
		frames[i] = TxFrame{Head: header(tx, rx, 64), Bulk: make([]byte, 8192), Tail: make([]byte, 10)}
	}
	_, slots := pagesIn(RecvBatch, 8192)
	got, dst, total := make([]RxFrame, RecvBatch), make([][]byte, RecvBatch), 0
	if a := testing.AllocsPerRun(100, func() {
		for range 2 {
			if n, err := tx.Send(frames); n != len(frames) || err != nil {
				t.Fatal(n, err)
			}
		}
		n, err := rx.RecvScatter(got, slots)
		must(t, err)
		for i := range got[:n] {
			total += len(got[i].Join())
		}
		n, err = rx.Recv(dst)
		if total += n; err != nil {
			t.Fatal(err)
		}
	}); a != 0 {
		t.Errorf("%v allocations per batch", a)
	}
	if total == 0 {
		t.Error("nothing was received")
	}
}

// Drivers that cannot say so, and name the one that can.
func TestPagesRefused(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	for _, kind := range []string{KindRing, KindUDP, KindAlone, ""} {
		_, err := Open("a0", Options{Kind: kind, Pages: true})
		if err == nil || !strings.Contains(err.Error(), `use "mmsg"`) {
			t.Errorf("driver %q: %v", kind, err)
		}
	}
}
