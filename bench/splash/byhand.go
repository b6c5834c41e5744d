package splash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/dsm"
)

// mates are the ranks of a program that is written by hand, with messages: writes with notifications into memory that
// each rank has for each other one.
type mates struct {
	ctx         context.Context
	rank, ranks int
	dev         *edge.Device
	mem         *edge.Region // exported to all
	out         *edge.Region
	conns       []*edge.Conn
	there       []*edge.RemoteRegion
	flying      []edge.Op
}

// meet connects the ranks of a job, each with so many bytes of memory for the others and for what it sends. It ends by
// kit.Check.
func meet(ctx context.Context, j *job, d *edge.Device, name string, mem, out int) *mates {
	m := &mates{ctx: ctx, rank: j.Rank, ranks: j.Ranks, dev: d, conns: make([]*edge.Conn, j.Ranks),
		there: make([]*edge.RemoteRegion, j.Ranks)}
	m.mem, m.out = kit.Get(d.Register(mem)), kit.Get(d.Register(out))
	service := func(rank int) string { return fmt.Sprintf("splash/%s/%d", name, rank) }
	l := kit.Get(d.Listen(ctx, service(j.Rank)))
	defer l.Close()
	for rank := range j.Rank {
		c, err := d.Dial(ctx, j.Hosts[rank], service(rank), edge.Data([]byte{byte(j.Rank)}))
		for errors.Is(err, edge.ErrNoService) { // it has not started yet
			kit.Check(ctx.Err())
			time.Sleep(time.Millisecond)
			c, err = d.Dial(ctx, j.Hosts[rank], service(rank), edge.Data([]byte{byte(j.Rank)}))
		}
		m.conns[rank] = kit.Get(c, err)
	}
	for range j.Ranks - j.Rank - 1 {
		c := kit.Get(l.Accept(ctx))
		m.conns[c.Data()[0]] = c
	}
	for _, c := range m.conns {
		if c != nil {
			kit.Get(m.mem.Export(c, "mate", edge.RemoteWrite, 0, mem))
		}
	}
	for rank, c := range m.conns {
		if c != nil {
			m.there[rank] = kit.Get(c.Import(ctx, "mate"))
		}
	}
	return m
}

// send writes n bytes from one place to another of a rank's memory, and notifies.
func (m *mates) send(rank int, local *edge.Region, at, n, to int) {
	m.flying = append(m.flying, kit.Get(m.conns[rank].Post(m.ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify,
		Local: local, LocalOff: at, Len: n, Remote: m.there[rank], RemoteOff: to})))
}

// settle waits until what was sent has arrived.
func (m *mates) settle() {
	kit.Check(edge.WaitAll(m.ctx, m.flying))
	m.flying = m.flying[:0]
}

// receive waits for a message of a rank.
func (m *mates) receive(rank int) { kit.Get(m.conns[rank].WaitNotify(m.ctx)) }

// together is a barrier.
func (m *mates) together() {
	for rank := 1; rank < m.ranks; rank++ {
		switch m.rank {
		case 0:
			m.receive(rank)
		case rank:
			m.send(0, m.out, 0, 8, m.mem.Len()-8)
			m.receive(0)
		}
	}
	for rank := 1; rank < m.ranks && m.rank == 0; rank++ {
		m.send(rank, m.out, 0, 8, m.mem.Len()-8)
	}
	m.settle()
}

// close ends the connections, when all ranks are through.
func (m *mates) close() {
	if err := kit.Try(m.together); !errors.Is(err, edge.ErrPeerClosed) { // a rank that is through may close first
		kit.Check(err)
	}
	for _, c := range m.conns {
		if c != nil {
			_ = c.Close() // the other may be faster
		}
	}
	_, _ = m.mem.Close(), m.out.Close() // nothing is in flight
}

// share is the part of n things of a rank.
func (m *mates) share(rank, n int) (lo, hi int) { return rank * n / m.ranks, (rank + 1) * n / m.ranks }

// fftByHand is the same program as fft, with a message from each rank to each other one for a transpose. It returns
// this rank's rows, and the time without setting up.
func fftByHand(ctx context.Context, j *job, d *edge.Device, s int) (rows []complex128, took time.Duration) {
	most := (s + j.Ranks - 1) / j.Ranks
	part := 16 * most * most // from one rank to another; two transposes may be under way
	m := meet(ctx, j, d, "fft", 2*j.Ranks*part+8, j.Ranks*part+8)
	lo, hi := m.share(j.Rank, s)
	x, y := make([]complex128, (hi-lo)*s), make([]complex128, (hi-lo)*s)
	for i := range x {
		x[i] = complex(uniform(2*(lo*s+i)), uniform(2*(lo*s+i)+1))
	}
	m.together()
	start := time.Now()
	m.transpose(x, y, s, part, 0)
	for r := lo; r < hi; r++ {
		row := y[(r-lo)*s : (r-lo+1)*s]
		transform(row)
		twiddle(row, r, s)
	}
	m.transpose(y, x, s, part, 1)
	for r := lo; r < hi; r++ {
		transform(x[(r-lo)*s : (r-lo+1)*s])
	}
	m.transpose(x, y, s, part, 0)
	m.together()
	took = time.Since(start)
	m.close()
	return y, took
}

// transpose makes this rank's rows of to from all ranks' rows of from, in the first or second half of the memory.
func (m *mates) transpose(from, to []complex128, s, part, half int) {
	lo, hi := m.share(m.rank, s)
	pack := func(rank int, b []complex128) {
		first, last := m.share(rank, s)
		for i := first; i < last; i++ {
			for j := range hi - lo {
				b[(i-first)*(hi-lo)+j] = from[j*s+i]
			}
		}
	}
	m.settle() // out may be written again
	for k := 1; k < m.ranks; k++ {
		rank := (m.rank + k) % m.ranks
		pack(rank, complexes(m.out.Bytes()[rank*part:]))
		first, last := m.share(rank, s)
		m.send(rank, m.out, rank*part, 16*(last-first)*(hi-lo), (half*m.ranks+m.rank)*part)
	}
	for k := range m.ranks {
		rank := (m.rank + k) % m.ranks
		first, last := m.share(rank, s)
		b := complexes(m.mem.Bytes()[(half*m.ranks+rank)*part:])
		if rank == m.rank {
			pack(rank, b)
		} else {
			m.receive(rank)
		}
		for i := range hi - lo {
			copy(to[i*s+first:i*s+last], b[i*(last-first):])
		}
	}
}

// oceanByHand is the same program as ocean, with messages of a row to each neighbour. It returns this rank's rows and,
// at rank 0, the greatest change of each sweep.
func oceanByHand(ctx context.Context, j *job, d *edge.Device, s int) (rows, change []float64, took time.Duration) {
	width := s + 2
	most := (s+j.Ranks-1)/j.Ranks + 2
	changes := 8 * most * width // where the greatest changes of ranks arrive
	m := meet(ctx, j, d, "ocean", changes+8*oceanSweeps*j.Ranks+8, 16)
	lo, hi := m.share(j.Rank, s)
	n := hi - lo
	g := floats(m.mem.Bytes())[:(n+2)*width] // rows lo to hi+1: those before and behind are of the neighbours
	for i := range g {
		g[i] = uniform(lo*width + i)
	}
	m.together()
	start := time.Now()
	for sweep := range oceanSweeps {
		greatest := 0.0
		for colour := range 2 {
			grid := make([][]float64, n+2)
			for i := range grid {
				grid[i] = g[i*width : (i+1)*width]
			}
			greatest = max(greatest, sweepRows(grid, lo+1, colour))
			m.swap(n, s, width)
		}
		change = append(change, m.greatest(greatest, changes+8*j.Ranks*sweep))
	}
	m.together()
	took = time.Since(start)
	rows = slices.Clone(g[width : (n+1)*width])
	m.close()
	return rows, change, took
}

// swap exchanges the rows at the edges with both neighbours.
func (m *mates) swap(n, s, width int) {
	row := 8 * width
	if m.rank > 0 {
		first, last := m.share(m.rank-1, s)
		m.send(m.rank-1, m.mem, row, row, (last-first+1)*row)
	}
	if m.rank < m.ranks-1 {
		m.send(m.rank+1, m.mem, n*row, row, 0)
	}
	if m.rank > 0 {
		m.receive(m.rank - 1)
	}
	if m.rank < m.ranks-1 {
		m.receive(m.rank + 1)
	}
	m.settle() // the rows are computed anew next
}

// greatest finds the greatest value of all ranks at rank 0, where they arrive at a place of its memory.
func (m *mates) greatest(v float64, at int) float64 {
	if m.rank > 0 {
		floats(m.out.Bytes())[1] = v
		m.send(0, m.out, 8, 8, at+8*m.rank)
		m.settle()
		return v
	}
	for rank := 1; rank < m.ranks; rank++ {
		m.receive(rank)
		v = max(v, floats(m.mem.Bytes()[at:])[rank])
	}
	return v
}

// handRounds is how often at most a kernel and its likes run in turn.
const handRounds = 15

// besideHand compares the kernels of the job that have their like written by hand with those, and with the same kernels
// on the same shared memory over TCP.
func (j *job) besideHand(ctx context.Context, d *edge.Device, tcp *mesh) (steps []Step) {
	byHand := map[string]func(size int) time.Duration{
		"fft":   func(s int) time.Duration { _, took := fftByHand(ctx, j, d, s); return took },
		"ocean": func(s int) time.Duration { _, _, took := oceanByHand(ctx, j, d, s); return took },
	}
	for i, t := range j.Tasks {
		hand := byHand[t.Kernel]
		if hand == nil {
			continue
		}
		k, _ := Named(t.Kernel)
		size := k.Memory(t.Size, j.Ranks)
		times := inTurn(min(j.Costs, handRounds), 1, func(round int) (took time.Duration) {
			c := j.config(d, fmt.Sprintf("hand/%d/%d", i, round), size)
			kit.Check(dsm.Run(ctx, c, func(m *dsm.Memory) error {
				_, s := k.Run(m, t.Size)
				took = s.Total
				return nil
			}))
			return took
		}, func(int) time.Duration {
			return hand(t.Size)
		}, func(int) (took time.Duration) {
			tcp.run(ctx, size, func(m *dsm.Memory) {
				_, s := k.Run(m, t.Size)
				took = s.Total
			})
			return took
		})
		what, own := fmt.Sprintf("run of %s on %d ranks", t.Kernel, j.Ranks), median(times[0])
		steps = append(steps,
			Step{What: what, Time: own, Beside: "run with messages by hand", Base: median(times[1]), Goal: 1.5},
			Step{What: what, Time: own, Beside: "run by the same protocol over TCP cubic", Base: median(times[2])})
	}
	return steps
}
