package regmem

// Backing says which bytes of a region are in memory now, where not all of them always are (Region.Back). The goroutine
// that owns the region's table calls it.
type Backing interface {
	// Touch counts a use of n bytes from off, and says that so many bytes behind them will follow. If all n are
	// resident ok is true. Otherwise what is missing was asked for, and page is the first of it: the waiter is to be
	// told that number when the page has come. Without n it only asks for what follows. It allocates nothing.
	Touch(off, n, follows uint64, site Site) (page uint64, ok bool)
	// Ask asks for a page again, in case it was forgotten. It reports whether it is resident, and if not, whether
	// pages are being made resident: then it may only have to wait its turn.
	Ask(page uint64) (resident, busy bool)
}

// Site is where an operation meets memory (DHL §IV.B.4).
type Site uint8

const (
	WriteSource Site = iota // own memory that a write takes its bytes from
	WriteTarget             // exported memory that a peer's write goes to
	ReadTarget              // exported memory that a peer's read takes its bytes from
	ReadDest                // own memory that the bytes of a read go to
	Sites       = iota
)

var siteNames = [Sites]string{"write_source", "write_target", "read_target", "read_destination"}

func (s Site) String() string { return siteNames[s] }

// Wait names what somebody waits for: a page of a backing. The zero Wait is nothing.
type Wait struct {
	Back Backing
	Page uint64
}

// Touch says that n bytes at off of the grant that the latest Resolve found, counted as there, are used now, and that
// others follow (Backing.Touch). Memory that is registered whole is always there.
func (t *Table) Touch(off, n, follows uint64, site Site) (w Wait, ok bool) {
	g := t.last
	if g.region.Back == nil {
		return Wait{}, true
	}
	page, ok := g.region.Back.Touch(g.base+off, n, min(follows, uint64(len(g.mem))-off-n), site)
	return Wait{g.region.Back, page}, ok
}

// Found returns the region that the latest Resolve found, and where in it the grant begins.
func (t *Table) Found() (r *Region, base uint64) {
	if t.last.owner&domains != 0 { // whose base is an address; what is added to it is one, too
		if _, g := t.index.find(t.last.key); g != nil {
			return t.last.region, g.off - g.address()
		}
	}
	return t.last.region, t.last.base
}

// Backed reports whether the memory that the latest Resolve found is of a region that is not always resident.
func (t *Table) Backed() bool { return t.last.region.Back != nil }
