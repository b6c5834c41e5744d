package regmem

import "fmt"

// Region is memory an application registered. It belongs to one Table and to the goroutine that owns it.
type Region struct {
	ID    uint32  // unique among the regions of its table; the registrant's handle
	Mem   *Memory // the bytes; owned by the region, given back by Close
	Owner uint64  // the client that registered it; opaque here
	Back  Backing // which bytes are in memory now; nil: all, always

	// InFlight counts operations that still refer to the bytes, maintained by the engine. Memory is neither closed nor
	// unpinned meanwhile.
	InFlight int

	grants list // the grants on it
}

// Granted says whether any key still reaches the region.
func (r *Region) Granted() bool { return r.grants.n > 0 }

// Close gives the region's memory back. While an operation or a key refers to the bytes it changes nothing and returns
// an error wrapping ErrBusy: call Table.RevokeRegion first, wait for InFlight to become zero, and close again. Closing
// a closed region does nothing.
func (r *Region) Close() error {
	if r.InFlight != 0 || r.Granted() {
		return fmt.Errorf("%w: region %d has %d operations in flight, keys granted: %t; revoke its keys and wait for "+
			"its operations",
			ErrBusy, r.ID, r.InFlight, r.Granted())
	}
	if r.Mem == nil {
		return nil
	}
	return r.Mem.Close()
}
