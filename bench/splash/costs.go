package splash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/atomics"
	"multiedge/edge/dsm"
)

// Step is what a step of shared memory costs, beside operations of package edge in the same run. Times are medians in
// microseconds.
type Step struct {
	What   string  `json:"what"`
	Time   float64 `json:"time"`
	Beside string  `json:"beside"`
	Base   float64 `json:"base"`
	Goal   float64 `json:"goal"`           // Time is at most so many times Base; 0: there is no goal
	Note   string  `json:"note,omitempty"` // what else was found
}

const (
	costPages = 16
	rawName   = "splash/raw"
)

// costs measures steps, at rank 1, from there to rank 0.
func (j *job) costs(ctx context.Context, d *edge.Device, tcp *mesh) (steps []Step, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	if j.Rank == 0 {
		// a Device of its own: of two that wait on one, one takes everything, and wakes the other for what is its
		own, err := edge.Open(ctx, edge.Config{Socket: j.Socket, Spin: dsm.Spin})
		if err != nil {
			return nil, err
		}
		defer own.Close()
		l, err := own.Listen(ctx, rawName)
		if err != nil {
			return nil, err
		}
		go func() { served <- serveRaw(ctx, l) }()
	}
	err = dsm.Run(ctx, j.config(d, "costs", 1<<20), func(m *dsm.Memory) error {
		return kit.Try(func() {
			a, told := dsm.Alloc[byte](m, costPages*4096, dsm.At(0)), dsm.Alloc[int64](m, 3, dsm.At(0))
			m.Barrier()
			var r *raw
			if m.Rank() == 1 {
				r = newRaw(ctx, d, j.Hosts[0])
				defer r.conn.Close()
			}
			steps = fetches(j.Costs, m, r, a)
			steps = append(steps, tcp.overTCP(ctx, j.Costs, m, a)...)
			steps = append(steps, release(j.Costs, m, r, a)...)
			steps = append(steps, locks(j.Costs, m, r)...)
			steps = append(steps, handOver(j.Costs, m, d, r, told)...)
			steps = append(steps, barriers(j.Costs, m, r)...)
		})
	})
	cancel()
	if j.Rank == 0 {
		err = errors.Join(err, <-served)
	}
	return steps, err
}

// serveRaw exports memory to one client, and answers each notification with one.
func serveRaw(ctx context.Context, l *edge.Listener) error {
	defer l.Close()
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	mem, err := c.Device().Register(costPages * 4096)
	if err != nil {
		return err
	}
	if _, err := mem.Export(c, "raw", edge.RemoteRead|edge.RemoteWrite|edge.RemoteAtomic, 0, mem.Len()); err != nil {
		return err
	}
	back, err := c.Import(ctx, "back")
	for err == nil {
		if _, err = c.WaitNotify(ctx); err == nil {
			_, err = c.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Inline: make([]byte, 8),
				Remote: back})
		}
	}
	if errors.Is(err, edge.ErrPeerClosed) || ctx.Err() != nil {
		return nil
	}
	return err
}

// raw is operations of package edge on memory of rank 0.
type raw struct {
	ctx   context.Context
	conn  *edge.Conn
	mem   *edge.Region
	there *edge.RemoteRegion
}

func newRaw(ctx context.Context, d *edge.Device, root string) *raw {
	r := &raw{ctx: ctx, conn: kit.Get(d.Dial(ctx, root, rawName)), mem: kit.Get(d.Register(costPages * 4096))}
	kit.Get(r.mem.Export(r.conn, "back", edge.RemoteWrite, 0, 4096))
	r.there = kit.Get(r.conn.Import(ctx, "raw"))
	return r
}

func (r *raw) read(n int) {
	kit.Do(r.ctx, r.conn, &edge.Work{Kind: edge.Read, Local: r.mem, Len: n, Remote: r.there})
}

func (r *raw) write() {
	kit.Do(r.ctx, r.conn, &edge.Work{Kind: edge.Write, Inline: make([]byte, 8), Remote: r.there})
}

func (r *raw) atomic() { kit.Get(atomics.Add(r.ctx, r.there, 0, 1)) }

// trip is there and back, with notifications.
func (r *raw) trip() {
	kit.Get(r.conn.Post(r.ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Inline: make([]byte, 8),
		Remote: r.there}))
	kit.Get(r.conn.WaitNotify(r.ctx))
}

// alternate returns the medians of two things that are done in turn, in microseconds.
func alternate(rounds int, a, b func(round int) time.Duration) (x, y float64) {
	times := inTurn(rounds, 1, a, b)
	return median(times[0]), median(times[1])
}

// inTurn does any number of things, each so many times before it is the turn of the next, and returns their times.
func inTurn(rounds, each int, things ...func(round int) time.Duration) (times [][]time.Duration) {
	times = make([][]time.Duration, len(things))
	for from := 0; from < rounds; from += each {
		for i, do := range things {
			for round := from; round < min(from+each, rounds); round++ {
				times[i] = append(times[i], do(round))
			}
		}
	}
	return times
}

// begins are the first few of the times of each turn.
func begins(times []time.Duration, each, few int) (list []time.Duration) {
	for turn := range slices.Chunk(times, each) {
		list = append(list, turn[:min(few, len(turn))]...)
	}
	return list
}

// median is in microseconds.
func median(list []time.Duration) float64 {
	slices.Sort(list)
	return float64(list[len(list)/2].Nanoseconds()) / 1000
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// behindWrite has rank 0 write pages, and returns how long rank 1 takes for f behind the barrier. What is compared has
// the same place: the barrier also gives rank 0 something to do, on the core of the daemon that is to answer.
func behindWrite(m *dsm.Memory, a dsm.Array[byte], pages int, f func()) func(round int) time.Duration {
	return func(round int) (d time.Duration) {
		if m.Rank() == 0 {
			for p := range pages {
				a.Set(p*page, byte(round))
			}
		}
		m.Barrier()
		if m.Rank() == 1 {
			d = timed(f)
		}
		m.Barrier()
		return d
	}
}

// fetchStale is how long rank 1 takes to fetch pages that rank 0 has written.
func fetchStale(m *dsm.Memory, a dsm.Array[byte], pages int) func(round int) time.Duration {
	return behindWrite(m, a, pages, func() { a.Read(0, pages*page) })
}

// fetches compares the fetch of stale pages with reads of as many bytes.
func fetches(rounds int, m *dsm.Memory, r *raw, a dsm.Array[byte]) (steps []Step) {
	for _, pages := range []int{1, costPages} {
		base := behindWrite(m, a, pages, func() { r.read(pages * page) }) // the pages stay stale
		x, y := alternate(rounds, fetchStale(m, a, pages), base)
		s := Step{What: "fetch of a page", Time: x, Beside: "read of 4 KiB", Base: y, Goal: 1.2}
		if pages > 1 {
			s.What, s.Beside, s.Goal = fmt.Sprintf("fetch of %d pages", pages), "read of 64 KiB", 1.15
		}
		steps = append(steps, s)
	}
	return steps
}

// release measures an Unlock, of a lock at home here, after one word was written.
func release(rounds int, m *dsm.Memory, r *raw, a dsm.Array[byte]) []Step {
	x, y := alternate(rounds, func(round int) (d time.Duration) {
		if r != nil {
			m.Lock(1)
			a.Set(8, byte(round))
			d = timed(func() { m.Unlock(1) })
		}
		return d
	}, func(int) (d time.Duration) {
		if r != nil {
			d = timed(r.write)
		}
		return d
	})
	m.Barrier()
	return []Step{{What: "release of one byte", Time: x, Beside: "write of 8 bytes", Base: y}}
}

// locks measures a lock at home at rank 0 that nobody else wants. Lock and Unlock are one step.
func locks(rounds int, m *dsm.Memory, r *raw) []Step {
	take := func(int) (d time.Duration) {
		if r != nil {
			d = timed(func() { m.Lock(0); m.Unlock(0) })
		}
		return d
	}
	x, y := alternate(rounds, take, func(int) (d time.Duration) {
		if r != nil {
			d = timed(r.atomic)
		}
		return d
	})
	m.Barrier()
	return []Step{{What: "free lock at another rank, taken and given back", Time: x, Beside: "single atomic", Base: y,
		Goal: 2.5}}
}

// held is how long at least rank 0 keeps a lock for which rank 1 comes meanwhile: twice as long each time that rank 1
// came too late, and a little shorter each time that it did not.
const held = 100 * time.Microsecond

// handOver measures the time from the Unlock of rank 0 until the Lock of rank 1, which waits for it, returns. Both read
// one clock, as the hosts of a lab do; rounds in which rank 1 came too late to wait do not count. It counts who had to
// be woken: what is handed over is one write, and the rest of the time is wake-ups.
func handOver(rounds int, m *dsm.Memory, d *edge.Device, r *raw, told dsm.Array[int64]) []Step {
	var passed, trips []time.Duration
	hold, slept, rang := held, 0, 0
	for range rounds {
		if m.Rank() == 0 {
			if told.At(1) != 0 {
				hold *= 2
			} else {
				hold = max(held, hold*7/8)
			}
			m.Lock(0)
		}
		m.Barrier()
		var at int64
		waits, calls := m.Stats().Waits, d.Counters()
		switch m.Rank() {
		case 0:
			for begun := sameClock(); sameClock()-begun < hold.Nanoseconds(); {
			}
			at = sameClock()
			m.Unlock(0)
			told.Set(0, at)
			told.Set(2, int64(d.Counters().Wakes-calls.Wakes))
		case 1:
			m.Lock(0)
			at = sameClock()
			calls.Sleeps = d.Counters().Sleeps - calls.Sleeps
			m.Unlock(0)
			waits = m.Stats().Waits - waits
			told.Set(1, int64(1-min(waits, 1)))
		}
		m.Barrier()
		if r != nil {
			if waits > 0 {
				passed = append(passed, time.Duration(at-told.At(0)))
				slept += int(min(calls.Sleeps, 1))
				rang += int(min(told.At(2), 1))
			}
			trips = append(trips, timed(r.trip))
		}
		m.Barrier()
	}
	if r == nil {
		return nil
	}
	if len(passed) > 0 && slices.Min(passed) < 0 {
		kit.Fail("rank 1 had a lock before rank 0 gave it back")
	}
	if len(passed) == 0 {
		kit.Fail("rank 1 never waited for a lock, in %d rounds: measure in more of them", rounds)
	}
	return []Step{{What: "hand-over of a lock that another rank waits for", Time: median(passed),
		Beside: "half of a round trip with notifications", Base: median(trips) / 2, Goal: 2,
		Note: fmt.Sprintf("; of %d, in %d the rank that waited slept and was woken, in %d the other's daemon",
			len(passed), slept, rang)}}
}

// sameClock reads the kernel's monotonic clock, which the processes of one machine have in common, in nanoseconds.
func sameClock() int64 {
	var t unix.Timespec
	kit.Check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &t))
	return t.Nano()
}

// barriers measures a barrier at which all arrive at once.
func barriers(rounds int, m *dsm.Memory, r *raw) []Step {
	x, y := alternate(rounds, func(int) time.Duration {
		m.Barrier()
		return timed(m.Barrier)
	}, func(int) (d time.Duration) {
		if r != nil {
			d = timed(r.trip)
		}
		m.Barrier()
		return d
	})
	s := Step{What: fmt.Sprintf("barrier of %d ranks", m.Ranks()), Time: x, Beside: "round trip with notifications",
		Base: y}
	if m.Ranks() == 2 {
		s.Goal = 1.5
	}
	return []Step{s}
}
