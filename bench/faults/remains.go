package faults

import (
	"bytes"
	"context"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
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
func (t *Trial) readsAtHand() *remains {
	r := &remains{raw: newRawClient(t.ctx, t.cluster.Socket(0))}
	t.atEnd(r.close)
	region, fd := kit.Get2(r.raw.Register(remainBytes))
	defer unix.Close(fd)
	r.memory = kit.Get(unix.Mmap(fd, 0, remainBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	kit.Check(r.raw.Mapped(region))
	conn, key, _ := r.raw.dial(&Job{Name: "remains", Peer: "host1", Service: "store", Seed: t.seed}, 1)
	for i := range remainReads {
		const n = remainBytes / remainReads
		r.raw.SQ.Put(&ipc.SQE{Op: ipc.OpRead, Conn: conn, Key: key, Region: region, LocalOff: uint64(i) * n, Len: n,
			Token: uint64(i)})
	}
	return r
}

func (r *remains) close() {
	r.raw.Close()
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
func (u *reused) fill(ctx context.Context, src *pattern.Source) {
	u.want = make([]byte, reuseBytes)
	src.Fill(u.want, 98)
	for range reuseCount {
		r := kit.Get(u.dev.RegisterContext(ctx, reuseBytes))
		copy(r.Bytes(), u.want)
		u.regions = append(u.regions, r)
	}
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
func clientKilled(t *Trial) {
	c := t.pair(MixReads, 4, 8)
	dev := t.open(0)
	r := t.readsAtHand()
	t.setFaults(lab.Faults{Delay: flightTime})
	r.raw.Publish()
	t.pause(flightTime + flightTime/2) // the requests have arrived, the first answers are in flight
	var done [remainReads]ipc.CQE
	if n, err := r.raw.CQ.Drain(done[:]); n > 0 || err != nil {
		t.row.U[3].fail("%d of %d reads ended before their client: the scenario proves nothing (%v)", n, remainReads,
			err)
	}
	at := time.Now()
	c.kill()
	r.raw.Conn.Close()
	t.injected("clients killed", 1)
	t.unpinned(0)
	src, u := pattern.New(t.seed), &reused{dev: dev}
	was := t.labCounters()
	src.Fill(r.memory, 99) // after which nobody may change it
	r.marked = bytes.Clone(r.memory)
	u.fill(t.ctx, src)
	t.told(c.job.Conns+1, at) // the connections of the process, and ours
	t.quiet()
	t.untouched(r, u, was)
	t.reuse()
}

// told waits until the server knows that a client has ended, whose connections, some of them ours, were so many.
func (t *Trial) told(conns int, at time.Time) {
	server := t.servers[0]
	took, ok := t.endings(server, conns)
	types := map[string]uint64{}
	for _, e := range server.endings() {
		types[e.Type]++
		t.ms("peer told after", e.At.Sub(at))
	}
	t.counted("connections that ended at the peer", total(types))
	t.check("the peer gets a typed answer", ok && types["untyped"] == 0, "%s after %v", counts(types), took)
}

// untouched judges memory that must not have changed since the wires' counters were was.
func (t *Trial) untouched(r *remains, u *reused, was lab.Counters) {
	now := t.labCounters()
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
		kit.Check(region.Close())
	}
	t.row.Counted[bytesCompared] += uint64(len(r.memory) + reuseCount*reuseBytes)
	t.check("no answer changes memory registered since", n == 0, "%d bytes changed", n)
	t.setFaults(lab.Faults{})
}
