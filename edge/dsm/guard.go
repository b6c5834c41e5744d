package dsm

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// guard is a transport whose data region the program does not see. What it sees is a view that is protected according
// to the states of pages, so that an access that was not declared faults. Every page is carried between the two, also
// at its home.
type guard struct {
	transport
	rank    int
	view    []byte
	region  []byte
	fetched []order
}

func newGuard(t transport, rank int) (*guard, error) {
	region, _ := t.memory()
	view, err := unix.Mmap(-1, 0, len(region), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("dsm: mapping %d bytes: %w", len(region), err)
	}
	return &guard{transport: t, rank: rank, view: view, region: region}, nil
}

func (g *guard) memory() (data, control []byte) {
	_, control = g.transport.memory()
	return g.view, control
}

func (g *guard) post(rank int, o order) {
	if o.area == data {
		if o.verb == read {
			g.fetched = append(g.fetched, o)
		} else {
			copy(g.region[o.here:o.here+o.n], g.view[o.here:])
		}
		if rank == g.rank {
			return
		}
	}
	g.transport.post(rank, o)
}

func (g *guard) wait() {
	g.transport.wait()
	for _, o := range g.fetched {
		g.protect(o.here/pageSize, (o.here+o.n)/pageSize, dirty)
		copy(g.view[o.here:o.here+o.n], g.region[o.here:])
	}
	g.fetched = g.fetched[:0]
}

// protect allows what pages first up to last may be used for in a state.
func (g *guard) protect(first, last int, s state) {
	const all = unix.PROT_READ | unix.PROT_WRITE
	allow := [...]int{stale: unix.PROT_NONE, coming: unix.PROT_NONE, clean: unix.PROT_READ, dirty: all, owned: all}[s]
	if err := unix.Mprotect(g.view[first*pageSize:last*pageSize], allow); err != nil {
		fail(fmt.Errorf("dsm: protecting %d pages: %w", last-first, err))
	}
}

func (g *guard) close() { _ = unix.Munmap(g.view) } // it is a mapping of ours

// catch makes a fault in the view of m a failure that names the element. Its result ends that.
func (m *Memory) catch(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		})
		if !ok {
			panic(r)
		}
		off := int(fault.Addr() - addressOf(m.mem))
		if off < 0 || off >= len(m.mem) {
			panic(r)
		}
		doing := "reads or writes"
		if m.state[off/pageSize] == clean {
			doing = "writes"
		}
		err = invalid("rank %d %s %s, and has not declared that since it last synchronised: call Read or Write first",
			m.rank, doing, m.whose(off))
	}()
	return f()
}
