package dsm

// Model takes the place of the protocol where all ranks are in one process and share one memory. It is told what each
// rank does, before it does it, and decides when the rank goes on. So a study learns what a program touches; nothing is
// moved.
type Model interface {
	// Alloc says that a page begins at an offset for each of homes, which are the ranks where the pages are at home.
	// Every rank says the same.
	Alloc(from int, homes []uint8)
	// Touch says that the rank declares bytes from up to to.
	Touch(how Access, from, to int)
	Lock(number int)
	Unlock(number int)
	Barrier()
}

// Access is how memory is declared.
type Access uint8

const (
	Reading     Access = iota // Read, At
	Writing                   // Write, Set
	Owning                    // Own, before Writing of the same bytes
	Prefetching               // Prefetch
)

// RunModel runs f as one of several ranks of a model. Of the Config it uses Rank, Ranks and Locks. The memory is the
// caller's, the same for all ranks.
func RunModel(c Config, memory []byte, model Model, f func(*Memory) error) error {
	c.Name, c.Root, c.Size = "model", "model", len(memory)
	if err := c.complete(); err != nil {
		return err
	}
	m := newMemory(&c, nil)
	m.mem, m.model = memory[:len(memory)/pageSize*pageSize], model
	clear(m.state) // all is stale for ever, so that the model is told of each access
	return m.run(f)
}

// alone is the model of a rank that has no others.
type alone struct{}

func (alone) Alloc(int, []uint8)     {}
func (alone) Touch(Access, int, int) {}
func (alone) Lock(int)               {}
func (alone) Unlock(int)             {}
func (alone) Barrier()               {}
