package dsm

// pageSize is the unit of fetching, of notices and of homes.
const pageSize = 4096

// maxText is how much of its error a rank that fails tells the others, in bytes.
const maxText = 240

// nodeText is the room for the name of a node in the roster, in bytes.
const nodeText = 64

// newsWords is how much of its log since the last barrier a rank may bring to a barrier, so that nobody has to read it.
const newsWords = 16

// layout says where things are in the control region of a rank, in bytes (DSM section 2). It is the same on all ranks.
// A vector is a position in the log of every rank, a word each.
type layout struct {
	ranks, locks int
	log          int // words of the ring
	pull         int // words of a log that a rank reads at once

	released int // what rank 0 writes at the end of a barrier: a vector, how much news of each rank, and all news
	granted  int // vector that comes with a lock
	arrived  int // at rank 0: for each rank, its position, its digest of allocations, how much news, and the news
	asked    int // for each rank, a word that it writes when it waits for a lock of ours
	ending   int // for each rank, why it ended
	roster   int // nodes of all ranks, which rank 0 writes
	out      int // what this rank writes elsewhere: a hash and a vector, or less
	got      int // hash and vector of a free lock, read from its home
	table    int // locks at home here: for each its tail, a hash and a vector (DSM clause 3.6)
	ring     int // the log
	landing  int // for each rank, what was read of its log
	size     int
}

func newLayout(c *Config) layout {
	n := c.Ranks
	l := layout{ranks: n, locks: c.Locks, log: c.Log, pull: c.Log / 2}
	place := func(at *int, bytes int) {
		*at = l.size
		l.size += (bytes + 7) &^ 7
	}
	place(&l.released, 8*n*(2+newsWords))
	place(&l.granted, 8*n)
	place(&l.arrived, n*arrival)
	place(&l.asked, 8*n)
	place(&l.ending, n*(16+maxText))
	place(&l.roster, n*nodeText)
	place(&l.out, max(8*(1+n), arrival))
	place(&l.got, 8*(1+n))
	place(&l.table, (c.Locks+n-1)/n*8*(2+n))
	place(&l.ring, 8*l.log)
	place(&l.landing, n*8*l.pull)
	return l
}

// arrival is the room for what a rank brings to a barrier, in bytes.
const arrival = 8 * (3 + newsWords)

// lock returns the home of a lock, and where it is in the control region there.
func (l *layout) lock(number int) (home, at int) {
	return number % l.ranks, l.table + number/l.ranks*8*(2+l.ranks)
}

// Notifications say what was written: a kind and a number (DSM section 2.3).
const (
	noteArrived  = (1 + iota) << 28 // at a barrier
	noteFinished                    // the function of the rank has returned
	noteReleased                    // the barrier is over
	noteAsked                       // waits for the lock of that number, behind us
	noteGranted                     // the lock of that number is ours
	noteRoster
	noteEnding // the rank of that number has failed

	noteNumber = 1<<28 - 1
)
