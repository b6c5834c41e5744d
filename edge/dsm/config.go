package dsm

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"multiedge/edge"
)

// Variable is the variable of the environment that says what Config leaves open: NAME,RANK,RANKS,ROOT.
const Variable = "EDGE_DSM"

// Spin is how long a rank polls for what it waits for before it sleeps, longer while sleeps prove short:
// edge.Config.Spin of the Device that Run opens, and of one that a program opens for it. Others hold locks for longer
// than operations take, and it takes longer to wake a rank than to hand a lock over.
const Spin = 250 * time.Microsecond

// Limits and defaults of Config.
const (
	MaxRanks    = 64
	maxSize     = 1 << 40
	maxLocks    = 1 << 20
	defaultSize = 64 << 20
	defaultLock = 1024
	defaultLog  = 8192
	defaultJoin = time.Minute
)

// Config says which rank of which run this is. The zero value takes Name, Rank, Ranks and Root from EDGE_DSM; without
// that variable the run has one rank, this one, and needs no transport. All ranks must have the same Name, Ranks, Size,
// Locks and Log.
type Config struct {
	Name  string // of the run: ranks find each other by it, and whoever knows it can join
	Rank  int    // of this process, from 0
	Ranks int    // 1 to MaxRanks; 0: EDGE_DSM says so
	Root  string // the node of rank 0, by name or identity; not needed by rank 0

	Device *edge.Device // through which ranks talk, which stays open; nil: the local daemon's
	Size   int          // bytes of shared memory, all of which every rank registers; 0: 64 MiB
	Locks  int          // Lock takes numbers below it; 0: 1024
	// words of a rank's log of changed pages: two for each release and one for each run of pages. A rank that has not
	// looked for longer than the log lasts takes all pages for changed. 0: 8192
	Log int
	// how long rank 0 waits for all others, and each of them for rank 0; then they wait until rank 0 says which did not
	// come, up to Join and 2 s more. 0: a minute
	Join time.Duration

	// Observe, if not nil, is told what this rank has done, at each of its barriers and at the end: a program exports
	// it so (DSM, "Metrics"). It is called by the goroutine of the function that Run called.
	Observe func(Stats)

	// Checked makes an access that was not declared end the run with the name of the page. It is slow: for tests.
	Checked bool
}

// complete fills in what was not chosen, and checks the rest.
func (c *Config) complete() error {
	if c.Ranks == 0 {
		if err := c.environment(os.Getenv(Variable)); err != nil {
			return err
		}
	}
	c.Size = (cmp.Or(c.Size, defaultSize) + pageSize - 1) / pageSize * pageSize
	c.Locks, c.Log, c.Join = cmp.Or(c.Locks, defaultLock), cmp.Or(c.Log, defaultLog), cmp.Or(c.Join, defaultJoin)
	switch {
	case c.Ranks < 1 || c.Ranks > MaxRanks:
		return invalid("%d ranks; choose 1 to %d", c.Ranks, MaxRanks)
	case c.Rank < 0 || c.Rank >= c.Ranks:
		return invalid("rank %d of %d; they count from 0", c.Rank, c.Ranks)
	case c.Ranks > 1 && c.Name == "":
		return invalid("the run has no name; choose one for all its ranks")
	case c.Rank > 0 && c.Root == "":
		return invalid("rank %d does not know the node of rank 0; set Root", c.Rank)
	case c.Size < pageSize || c.Size > maxSize:
		return invalid("%d bytes of memory; choose up to %d", c.Size, maxSize)
	case c.Locks < 1 || c.Locks > maxLocks:
		return invalid("%d locks; choose 1 to %d", c.Locks, maxLocks)
	case c.Log < 16 || c.Log > 1<<24 || c.Log%2 != 0:
		return invalid("a log of %d words; choose an even number from 16 to %d", c.Log, 1<<24)
	}
	return nil
}

// environment takes the run and the rank from the value of EDGE_DSM.
func (c *Config) environment(value string) error {
	if value == "" {
		c.Rank, c.Ranks = 0, 1
		return nil
	}
	fields := strings.Split(value, ",")
	if len(fields) != 4 {
		return invalid("%s=%q: want NAME,RANK,RANKS,ROOT", Variable, value)
	}
	rank, err := strconv.Atoi(fields[1])
	ranks, err2 := strconv.Atoi(fields[2])
	if err != nil || err2 != nil || ranks < 1 {
		return invalid("%s=%q: RANK and RANKS are whole numbers", Variable, value)
	}
	c.Name, c.Rank, c.Ranks, c.Root = fields[0], rank, ranks, fields[3]
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: dsm: "+format, append([]any{edge.ErrInvalid}, args...)...)
}
