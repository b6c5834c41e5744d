package sim

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// begin is when the messages of these tests are submitted.
const begin = mono.Time(time.Second)

// postedInbox is an inbox of messages that wait so, all submitted at begin; its buffers are posted some time later.
func postedInbox(t *testing.T, after time.Duration, waits ...uint64) (*swarm, *inbox) {
	w := &swarm{world: New(Options{})}
	t.Cleanup(w.world.Stop)
	in := &inbox{mail: &area{node: w.world.Nodes[0], name: "buffers"}, posted: len(waits)}
	for i, off := range waits {
		o := &operation{size: 10 + i, submitted: true}
		o.op.Kind, o.op.Patience = engine.OpSend, off
		in.await(o, drawData(stream(uint64(i), mailStream), o.size))
		o.msg.at = begin
	}
	in.layBuffers(in.mail)
	in.mail.make(1, false)
	for _, b := range in.buffers {
		b.at = begin.Add(after)
	}
	return w, in
}

// fill has message i come into the next buffer.
func (in *inbox) fill(w *swarm, i int) error {
	b := in.buffers[in.got]
	in.got++
	copy(b.bytes(), in.awaits[i].msg.data)
	err := in.meets(w, b, &engine.Event{Msg: engine.Arrived{Len: uint32(in.awaits[i].size)}})
	b.fill(reused)
	return err
}

// The oracle of messages: which may meet a buffer after what, and which may be refused when.
func TestOracleOfMessages(t *testing.T) {
	const strict, limited, patient = engine.NoWait, uint64(10 * time.Millisecond), 0
	for _, c := range []struct {
		name    string
		posted  time.Duration
		waits   []uint64
		refused int // the first so many
		come    []int
		wrong   bool // the last of come
	}{
		{"all in order", 0, []uint64{strict, limited, patient}, 0, []int{0, 1, 2}, false},
		{"two passed over", 0, []uint64{strict, limited, patient}, 0, []int{2}, false},
		{"two refused", 0, []uint64{strict, limited, patient}, 2, []int{2}, false},
		{"one comes that was refused", 0, []uint64{strict, patient}, 1, []int{0}, true},
		{"one comes after the next", 0, []uint64{strict, strict, patient}, 0, []int{1, 0}, true},
		{"a patient one passed over", 0, []uint64{patient, patient}, 0, []int{1}, true},
		{"one comes twice", 0, []uint64{strict, patient}, 0, []int{0, 0}, true},
		{"within the limit", 10 * time.Millisecond, []uint64{limited}, 0, []int{0}, false},
		{"beyond the limit", 12 * time.Millisecond, []uint64{limited}, 0, []int{0}, true},
	} {
		w, in := postedInbox(t, c.posted, c.waits...)
		for _, o := range in.awaits[:c.refused] {
			o.complete, o.status = true, engine.StatusNoBuffer
		}
		for n, i := range c.come {
			if err := in.fill(w, i); (err != nil) != (c.wrong && n == len(c.come)-1) {
				t.Errorf("%s: message %d: %v", c.name, i, err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		off   uint64
		after time.Duration
		sure  bool
		came  int
		wrong bool
	}{
		{"strict", strict, 0, false, 0, false},
		{"strict, with a buffer", strict, 0, true, 0, true},
		{"strict, and came", strict, 0, false, 1, true},
		{"limited, too early", limited, 9 * time.Millisecond, false, 0, true},
		{"limited", limited, 10 * time.Millisecond, true, 0, false},
		{"limited, too late", limited, 12 * time.Millisecond, false, 0, true},
		{"patient", patient, time.Hour, false, 0, true},
	} {
		w, in := postedInbox(t, 0, c.off)
		o := in.awaits[0]
		w.world.Now, o.msg.sure, o.notified = begin.Add(c.after), c.sure, c.came
		if err := o.judgeRefusal(w); (err != nil) != c.wrong {
			t.Errorf("refused, %s: %v", c.name, err)
		}
	}
}
