package remap

import "fmt"

// Grain is the unit of exchange in bytes unless Options say otherwise. Runs begin and end at multiples of it, so that
// however often pages have been exchanged, a grain is contiguous in the file: the number of mappings stays bounded.
const Grain = 64 << 10

// Least is the shortest run, in bytes, that is exchanged unless Options say otherwise: shorter ones are copied faster
// (docs/PERFORMANCE.md, "Zero copy").
const Least = 256 << 10

// Options bound a Space. Zero fields get the values given. Lengths are bytes, rounded up to whole grains.
type Options struct {
	Extent  int // longest run that is exchanged at once; default: a quarter of the region, from Least to 2 MiB
	Extents int // such runs that can be received at a time; default: 4
	Least   int // shortest run that is exchanged; default: Least
	Grain   int // unit of exchange, a power of two, no less than a page; default: Grain
}

func (o *Options) normalize(size int) {
	if o.Grain <= 0 {
		o.Grain = Grain
	}
	if o.Least <= 0 {
		o.Least = Least
	}
	o.Least = up(o.Least, o.Grain)
	if o.Extent <= 0 {
		o.Extent = min(up(size, o.Grain)/4, 2<<20)
	}
	o.Extent = max(up(o.Extent, o.Grain), o.Least)
	if o.Extents <= 0 {
		o.Extents = 4
	}
}

// Fits reports whether memory of size bytes is large enough that runs of it are ever exchanged under o.
func (o Options) Fits(size int) bool {
	o.normalize(size)
	return size >= o.Least
}

// Pinned is how many bytes a region of size bytes has with its pool under o.
func (o Options) Pinned(size int) int {
	o.normalize(size)
	return up(size, o.Grain) + o.Extent*o.Extents
}

// Space is a region and a pool of receive buffers whose pages can change places (paper 2.3.2, "Page remapping" and
// "Replenishing kernel buffers"). Both are windows of one file; a table says which grain of the file each grain shows.
// Pages never leave the file, so they never pass from one region, or one owner, to another.
//
// The goroutine that owns the Exchanger owns the Space, except for retain and Close. The bytes of the region may be
// used by anybody: during an exchange an access finds the old page or the new one, never none.
type Space struct {
	view, pool []byte
	base       uintptr
	home       []uint32 // the grain of the file that is shown, of each grain of view, then of each of the pool
	grains     int      // of view, the last one perhaps in part
	free       []int    // extents of the pool that are not in use, by offset
	grain      int
	extent     int
	least      int
	windows    windows
}

// windows changes what memory of a Space shows.
type windows interface {
	// show makes the bytes at mem those of the file from offset on. On error mem is unchanged, or nothing is there any
	// more.
	show(mem []byte, offset int64) error
}

// newSpace describes windows that show the file in order: first the region, then, from the next grain on, the pool.
func newSpace(view, pool []byte, o Options, w windows) *Space {
	s := &Space{
		view: view, pool: pool, base: address(view), grains: up(len(view), o.Grain) / o.Grain, grain: o.Grain,
		extent: o.Extent, least: o.Least, windows: w,
	}
	s.home = make([]uint32, s.grains+len(pool)/o.Grain)
	for i := range s.home {
		s.home[i] = uint32(i)
	}
	for at := 0; at+o.Extent <= len(pool); at += o.Extent {
		s.free = append(s.free, at)
	}
	return s
}

// Bytes returns the region.
func (s *Space) Bytes() []byte { return s.view }

// up and down round to whole units.
func up(n, unit int) int   { return (n + unit - 1) &^ (unit - 1) }
func down(n, unit int) int { return n &^ (unit - 1) }

// pieces counts the contiguous runs of the file in home.
func pieces(home []uint32) int {
	n := 0
	for i := range home {
		if i == 0 || home[i] != home[i-1]+1 {
			n++
		}
	}
	return n
}

// worth reports whether exchanging n bytes beats copying them: each piece costs a system call and a flush of the other
// processors' TLBs.
func (s *Space) worth(at, from, n int) bool {
	v, p := s.homes(at, from, n)
	return (pieces(v)+pieces(p))*s.least <= 2*n
}

func (s *Space) homes(at, from, n int) (view, pool []uint32) {
	k, v, p := n/s.grain, at/s.grain, s.grains+from/s.grain
	return s.home[v : v+k], s.home[p : p+k]
}

// Pool returns the receive buffers. With an Exchanger they are the Exchanger's.
func (s *Space) Pool() []byte { return s.pool }

// Exchange makes n bytes of the region at at and of the pool at from change places. All three are whole grains. On
// error nothing was exchanged. If whole is false the pages are exchanged but the pool's window shows them, too, and
// must not be used any more.
func (s *Space) Exchange(at, from, n int) (whole bool, err error) {
	view, pool := s.homes(at, from, n)
	if err := s.show(s.view[at:at+n], pool); err != nil {
		if again := s.show(s.view[at:at+n], view); again != nil {
			panic(fmt.Sprintf("remap: %v; putting back what was there: %v: part of a region is lost", err, again))
		}
		return true, err
	}
	for i := range view {
		view[i], pool[i] = pool[i], view[i]
	}
	return s.show(s.pool[from:from+n], pool) == nil, nil
}

// show makes mem show the grains of home, with one call for each contiguous run.
func (s *Space) show(mem []byte, home []uint32) error {
	for i := 0; i < len(home); {
		j := i + 1
		for j < len(home) && home[j] == home[j-1]+1 {
			j++
		}
		if err := s.windows.show(mem[i*s.grain:j*s.grain], int64(home[i])*int64(s.grain)); err != nil {
			return err
		}
		i = j
	}
	return nil
}
