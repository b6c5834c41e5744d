package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// failing is memory of which what lies behind there does not come, and nothing of it does.
type failing struct{ there uint64 }

func (b failing) Touch(off, n, _ uint64, _ regmem.Site) (uint64, bool) { return off, off+n <= b.there }

func (b failing) Ask(uint64) (resident, busy bool) { return false, false }

// Clause 16.5: a send that its own node gives up, since its memory does not come, leaves no hole among the messages, of
// whatever length it is and however much of it has arrived: those behind it have their buffers, and the frames end.
func TestSendIsGivenUp(t *testing.T) {
	for _, k := range []struct {
		size  int
		there uint64
	}{{100, 0}, {20_000, 0}, {20_000, 8000}} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of %d bytes, shared queue %v", k.there, k.size, shared), func(t *testing.T) {
				testSendIsGivenUp(t, k.size, k.there, shared)
			})
		}
	}
}

func testSendIsGivenUp(t *testing.T, size int, there uint64, shared bool) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	q := engine.QueueID(0)
	if shared {
		q = r.n[1].e.NewReceiveQueue()
		r.n[1].e.JoinReceiveQueue(r.now, c[1], q)
	}
	var boxes [][]byte
	for k := range uint64(6) {
		boxes = append(boxes, r.post(1, c[1], q, k, size))
	}
	r.settle()
	mem := pattern(1, size)
	bad := send(0, mem)
	bad.Region = &regmem.Region{ID: 1, Mem: regmem.Wrap(mem), Back: failing{there}}
	r.submit(0, c[0], bad)
	r.submit(0, c[0], send(1, []byte("behind it")))
	r.must("both sends", 5*time.Second, r.all(0, 2))
	r.wantStatus(0, 0, engine.StatusMemory)
	r.wantStatus(0, 1, engine.OK)
	r.must("both buffers", time.Second, r.got(1, 2))
	evs := r.received(1)
	if evs[0].Token != 0 || evs[0].Status != engine.StatusTooLong {
		t.Errorf("the buffer of the send that was given up came back as %+v", evs[0])
	}
	if evs[1].Token != 1 || evs[1].Status != engine.OK || !bytes.HasPrefix(boxes[1], []byte("behind it")) {
		t.Errorf("the buffer of the one behind it came back as %+v, with %q", evs[1], boxes[1][:9])
	}
	if count := &r.n[1].e.Count; count.Reject.RejectedMalformed > 0 || count.Op.GuessesIgnored > 0 {
		t.Errorf("%d frames were malformed", count.Reject.RejectedMalformed)
	}
	r.n[0].e.Close(r.now, c[0])
	r.must("the end", time.Second, func() bool { return len(r.n[0].closed)+len(r.n[1].closed) == 2 })
}
