package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// redirector writes blocks of memory that is redirected, one write after the other.
type redirector struct {
	*rig
	c      [2]engine.ConnID
	mem    []byte
	key    regmem.Key
	region regmem.Region
	writes int
}

const redirectBlock = 64

func newRedirector(t *testing.T, blocks int) *redirector {
	r := newRig(t, rigOptions{})
	x := &redirector{rig: r, c: r.connect(engine.DialOptions{})}
	x.mem, x.key = r.export(1, x.c[1], blocks*redirectBlock, both)
	r.settle()
	return x
}

// redirect redirects n blocks from the first on.
func (x *redirector) redirect(t *testing.T, token uint64, first, n int) (to []byte) {
	t.Helper()
	to = make([]byte, n*redirectBlock)
	if st := redirectTo(x.n[1].e, x.c[1], token, x.key, uint64(first*redirectBlock), to, &x.region); st != engine.OK {
		t.Fatalf("redirection %d: %v", token, st)
	}
	return to
}

// write fills n blocks from the first on with a byte of its own, which it returns.
func (x *redirector) write(first, n int) byte {
	x.writes++
	b := byte(x.writes)
	x.submit(0, x.c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(x.writes), Key: x.key,
		Local: bytes.Repeat([]byte{b}, n*redirectBlock), Off: uint64(first * redirectBlock)})
	x.must("a write", 5*time.Second, x.all(0, x.writes))
	return b
}

// ends returns the ends of redirections so far, by token.
func (x *redirector) ends() map[uint64]engine.Event {
	x.poll(1)
	ends := map[uint64]engine.Event{}
	for _, ev := range x.n[1].events {
		if ev.Kind == engine.EvRedirected {
			ends[ev.Token] = ev
		}
	}
	return ends
}

func isBlock(mem []byte, i int, b byte) bool {
	return bytes.Equal(mem[i*redirectBlock:][:redirectBlock], bytes.Repeat([]byte{b}, redirectBlock))
}

// A redirection remembers sixteen spans; bytes that would make a further one go where they would without it. The owner
// is told the two longest, and finds the others where they would be.
func TestRedirectSpans(t *testing.T) {
	const blocks = 40
	x := newRedirector(t, blocks)
	to := x.redirect(t, 7, 0, blocks)
	want := map[int]byte{}
	for i := range 16 {
		want[2*i] = x.write(2*i, 1)
	}
	home := map[int]byte{34: x.write(34, 1)} // the seventeenth
	want[1] = x.write(1, 1)                  // joins two: there is room for one
	want[36] = x.write(36, 1)
	home[38] = x.write(38, 1)
	for _, i := range []int{3, 21, 23} { // blocks 0 to 4 and 20 to 24 are the longest now
		want[i] = x.write(i, 1)
	}
	for i, b := range want {
		if !isBlock(to, i, b) || !isBlock(x.mem, i, 0) {
			t.Errorf("block %d is not redirected", i)
		}
	}
	for i, b := range home {
		if !isBlock(x.mem, i, b) || !isBlock(to, i, 0) {
			t.Errorf("block %d is redirected", i)
		}
	}
	if !x.n[1].e.EndRedirect(x.c[1], 7) || x.n[1].e.EndRedirect(x.c[1], 7) {
		t.Error("what EndRedirect says is not whether there was one")
	}
	told := [2]engine.Span{{Off: 0, N: 5 * redirectBlock}, {Off: 20 * redirectBlock, N: 5 * redirectBlock}}
	if end := x.ends()[7]; end.Status != engine.OK || end.Spans != told || x.region.InFlight != 0 {
		t.Errorf("ended as %+v, want %v; %d in flight", end, told, x.region.InFlight)
	}
	for i, b := range want {
		if i <= 4 || i >= 20 && i <= 24 {
			b = 0 // told, so not copied
		}
		if !isBlock(x.mem, i, b) {
			t.Errorf("block %d of the memory is not %d", i, b)
		}
	}
	if got := x.n[1].e.Count.Traffic.PayloadReceived; got != uint64(x.writes*redirectBlock) {
		t.Errorf("%d bytes of payload received, %d written", got, x.writes*redirectBlock)
	}
}

// A redirection that has all its bytes ends by itself, whatever parts they came in, and one write may end several.
func TestRedirectEndsWhenWhole(t *testing.T) {
	x := newRedirector(t, 12)
	one, two, three := x.redirect(t, 1, 0, 2), x.redirect(t, 2, 3, 2), x.redirect(t, 3, 6, 3)
	b := x.write(0, 7) // all of two, part of the third, and what lies between
	for i, want := range []byte{0, 0, b, 0, 0, b, 0, 0} {
		if !isBlock(x.mem, i, want) {
			t.Errorf("block %d of the memory is not %d", i, want)
		}
	}
	if !isBlock(one, 0, b) || !isBlock(one, 1, b) || !isBlock(two, 0, b) || !isBlock(two, 1, b) ||
		!isBlock(three, 0, b) || !isBlock(three, 1, 0) {
		t.Error("part of the write is not where it was redirected to")
	}
	ends := x.ends()
	whole := [2]engine.Span{{N: 2 * redirectBlock}}
	if len(ends) != 2 || ends[1].Spans != whole || ends[2].Spans != whole || x.region.InFlight != 1 {
		t.Errorf("ends %+v, %d in flight", ends, x.region.InFlight)
	}
	if x.n[1].e.EndRedirect(x.c[1], 1) {
		t.Error("the first is there still")
	}
	b = x.write(0, 1) // nothing is redirected any more
	if !isBlock(x.mem, 0, b) {
		t.Error("a redirection that ended redirects")
	}
	x.write(8, 1)
	if len(x.ends()) != 2 {
		t.Error("the third ended with a hole")
	}
	x.write(7, 1)
	whole[0].N = 3 * redirectBlock
	if end := x.ends()[3]; end.Status != engine.OK || end.Spans != whole || x.region.InFlight != 0 {
		t.Errorf("the third ended as %+v, %d in flight", end, x.region.InFlight)
	}
	if n := x.n[1].e.Count.Placing.BytesRedirected; n != 7*redirectBlock {
		t.Errorf("%d bytes redirected", n)
	}
}
