package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/pattern"
	"multiedge/edge"
	"multiedge/internal/ipc"
	"multiedge/internal/lab"
)

// Memory of a client that died, and memory that others got in its place. Answers to the client's reads are still in
// flight when the daemon releases the memory. No answer may change either memory.
const (
	flightTime  = 150 * time.Millisecond // a frame's way, so that answers arrive after the end
	remainBytes = 1 << 20
	remainReads = 32
	lateLeast   = 8 // frames that must arrive after the end; with fewer the scenario proves nothing
	reuseBytes  = 4 << 20
	reuseCount  = 4
)

// remains is a client in this process that reads by hand and then disappears, as a killed client does. Its memory stays
// mapped here.
type remains struct {
	raw    *rawClient
	memory []byte
	marked []byte // what memory was filled with when the daemon had let go of it
}

// readsAtHand attaches to the daemon of host 0 and prepares reads of the store of host 1.
func (t *Trial) readsAtHand(ctx context.Context) (r *remains, err error) {
	r = &remains{}
	if r.raw, err = newRawClient(ctx, t.cluster.Socket(0)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	m, fds, err := r.raw.call(&ipc.Message{Kind: ipc.KindRegister, Size: remainBytes})
	if err != nil {
		return nil, err
	}
	defer ipc.CloseFDs(fds)
	if len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors came with the memory", len(fds))
	}
	if r.memory, err = unix.Mmap(fds[0], 0, remainBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if _, _, err := r.raw.call(&ipc.Message{Kind: ipc.KindMapped, Region: m.Region}); err != nil {
		return nil, err
	}
	conn, key, _, err := r.raw.dial(&Job{Name: "remains", Peer: "host1", Service: "store", Seed: t.seed}, 1)
	if err != nil {
		return nil, err
	}
	for i := range remainReads {
		const n = remainBytes / remainReads
		r.raw.sq.Put(&ipc.SQE{Op: ipc.OpRead, Conn: conn, Key: key, Region: m.Region, LocalOff: uint64(i) * n, Len: n,
			Token: uint64(i)})
	}
	return r, nil
}

// begin starts the reads.
func (r *remains) begin() {
	if r.raw.sq.Publish() {
		r.raw.bell.Ring()
	}
}

// ended returns how many of the reads have ended, with success or an error.
func (r *remains) ended() (int, error) {
	var done [remainReads]ipc.CQE
	return r.raw.cq.Drain(done[:])
}

// mark fills memory, after which nobody may change it.
func (r *remains) mark(src *pattern.Source) {
	src.Fill(r.memory, 99)
	r.marked = bytes.Clone(r.memory)
}

func (r *remains) close() {
	r.raw.close()
	if r.memory != nil {
		_ = unix.Munmap(r.memory)
	}
}

// reused is memory that was registered after other memory had been given back.
type reused struct {
	dev     *edge.Device
	regions []*edge.Region
	want    []byte
}

// fill registers memory of the sizes that were given back, and fills it.
func (u *reused) fill(ctx context.Context, src *pattern.Source) error {
	u.want = make([]byte, reuseBytes)
	src.Fill(u.want, 98)
	for range reuseCount {
		r, err := u.dev.RegisterContext(ctx, reuseBytes)
		if err != nil {
			return err
		}
		copy(r.Bytes(), u.want)
		u.regions = append(u.regions, r)
	}
	return nil
}

// differing counts the bytes of two ranges that are not the same.
func differing(a, b []byte) (n int) {
	if bytes.Equal(a, b) {
		return 0
	}
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// clientKilled kills a client while answers to its reads are in flight on a long wire. It then looks at the client's
// memory and at the memory that took its place.
func clientKilled(ctx context.Context, t *Trial) error {
	c, err := t.pair(ctx, MixReads, 4, 8)
	if err != nil {
		return err
	}
	dev, err := edge.Open(ctx, edge.Config{Socket: t.cluster.Socket(0)})
	if err != nil {
		return err
	}
	defer dev.Close()
	r, err := t.readsAtHand(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	if err := t.setFaults(lab.Faults{Delay: flightTime}); err != nil {
		return err
	}
	r.begin()
	if !sleep(ctx, flightTime+flightTime/2) { // the requests have arrived, the first answers are in flight
		return ctx.Err()
	}
	if n, err := r.ended(); n > 0 || err != nil {
		t.row.U[3].fail("%d of %d reads ended before their client: the scenario proves nothing (%v)", n, remainReads,
			err)
	}
	at := time.Now()
	c.kill()
	r.raw.conn.Close()
	t.injected("clients killed", 1)
	t.unpinned(ctx, 0)
	src, u := pattern.New(t.seed), &reused{dev: dev}
	was, err := t.labCounters()
	if err != nil {
		return err
	}
	r.mark(src)
	if err := u.fill(ctx, src); err != nil {
		return err
	}
	if err := t.told(ctx, c, at); err != nil {
		return err
	}
	t.quiet(ctx)
	if err := t.untouched(r, u, was); err != nil {
		return err
	}
	return t.reuse(ctx)
}

// told waits until the server knows that a client has ended.
func (t *Trial) told(ctx context.Context, c *agent, at time.Time) error {
	server := t.servers[0]
	// the connections of the process, and ours
	took, ok := t.event(ctx, 2*time.Second, func() bool { return len(server.endings()) > c.job.Conns })
	types := map[string]uint64{}
	for _, e := range server.endings() {
		types[e.Type]++
		t.row.Measured["peer told after ms"] = float64(e.At.Sub(at).Microseconds()) / 1e3
	}
	t.counted("connections that ended at the peer", total(types))
	t.check("the peer gets a typed answer", ok && types["untyped"] == 0, "%s after %v", counts(types), took)
	return ctx.Err()
}

// untouched judges memory that must not have changed since the wires' counters were was.
func (t *Trial) untouched(r *remains, u *reused, was lab.Counters) error {
	now, err := t.labCounters()
	if err != nil {
		return err
	}
	late := now.Delivered - was.Delivered
	t.counted("frames that arrived afterwards", late)
	if late < lateLeast {
		t.row.U[3].fail("%d frames arrived after the memory was let go of: the scenario proves nothing", late)
	}
	n := differing(r.memory, r.marked)
	t.check("no answer changes the dead client's memory", n == 0,
		"%d bytes of %d changed after the daemon had let go of it", n, len(r.memory))
	n = 0
	for _, region := range u.regions {
		n += differing(region.Bytes(), u.want)
		err = errors.Join(err, region.Close())
	}
	t.row.Counted[bytesCompared] += uint64(len(r.memory) + reuseCount*reuseBytes)
	t.check("no answer changes memory registered since", n == 0, "%d bytes changed", n)
	return errors.Join(err, t.setFaults(lab.Faults{}))
}
