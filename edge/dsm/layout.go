package dsm

// pageSize is the unit of fetching, of notices and of homes.
const pageSize = 4096

// maxText is how much of its error a rank that fails tells the others, in bytes.
const maxText = 240

// nodeText is the room for the name of a node in the roster, in bytes.
const nodeText = 64

// newsWords is how much of its log a rank may bring to a barrier or leave with a lock, so that nobody has to read it.
const newsWords = 16

// followWords is how many runs of pages a rank begins to follow at a barrier, and changeWords the room for changes of
// followed pages that it brings there.
const (
	followWords = 8
	changeWords = 2048
)

// layout says where things are in the control region of a rank, in bytes (DSM section 2). It is the same on all ranks.
// A vector is a position in the log of every rank, a word each.
type layout struct {
	ranks, locks int
	log          int // words of the ring
	pull         int // words of a log that a rank reads at once

	released int // vector of the last barrier
	granted  int // vector and news that come with a lock
	arrived  int // what each rank brings to a barrier, and to the next one beside it
	asked    int // for each rank, a word that it writes when it waits for a lock of ours
	ending   int // for each rank, why it ended
	roster   int // nodes of all ranks, which rank 0 writes
	out      int // what this rank writes elsewhere: what it brings to a barrier, or a hash and a vector, or less
	got      int // hash, vector and news of a free lock, read from its home
	table    int // locks at home here: for each its tail, a hash, a vector and news (DSM clause 3.6)
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
	place(&l.released, 8*n)
	place(&l.granted, l.vectorNews())
	place(&l.arrived, 2*n*arrival)
	place(&l.asked, 8*n)
	place(&l.ending, n*(16+maxText))
	place(&l.roster, n*nodeText)
	place(&l.out, max(8+l.vectorNews(), arrival))
	place(&l.got, 8+l.vectorNews())
	place(&l.table, (c.Locks+n-1)/n*l.lockSize())
	place(&l.ring, 8*l.log)
	place(&l.landing, n*8*l.pull)
	return l
}

// What a rank brings to a barrier, in bytes: its position, a digest of its allocations, how many words of its log and
// how many of pages to follow are there, and room for these and for changes (DSM clauses 3.7 and 3.8).
const (
	arrivedLog     = 8 * 4
	arrivedFollows = arrivedLog + 8*newsWords
	arrivedChanges = arrivedFollows + 8*followWords
	arrival        = arrivedChanges + 8*changeWords
)

// arrival returns where a rank writes what it brings to a barrier of that number. Nobody arrives at the one after the
// next before all have left this one.
func (l *layout) arrival(barrier, rank int) int { return l.arrived + arrival*(barrier&1*l.ranks+rank) }

// lock returns the home of a lock, and where it is in the control region there.
func (l *layout) lock(number int) (home, at int) {
	return number % l.ranks, l.table + number/l.ranks*l.lockSize()
}

// vectorNews is the length of what comes with a lock, in bytes: a vector, the rank that had the lock, and the end of
// its log.
func (l *layout) vectorNews() int { return 8 * (l.ranks + 1 + newsWords) }

// lockSize is the room for a lock at its home.
func (l *layout) lockSize() int { return 16 + l.vectorNews() }

// Notifications say what was written: a kind and a number (DSM section 2.3).
const (
	noteArrived  = (1 + iota) << 28 // at a barrier
	noteFinished                    // the function of the rank has returned
	noteAsked                       // waits for the lock of that number, behind us
	noteGranted                     // the lock of that number is ours
	noteRoster
	noteEnding // the rank of that number has failed

	noteNumber = 1<<28 - 1
)
