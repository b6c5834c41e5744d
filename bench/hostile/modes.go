package hostile

import (
	"encoding/binary"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// mode is one way to misbehave. act does a little of it and returns how many acts that were; it ends the mischief by an
// error.
type mode struct {
	name  string
	fatal bool // a daemon that protects itself evicts the client for it
	peer  bool // it is about operations with a peer
	act   func(c *client, r *rand.Rand) (acts uint64, err error)
}

// modes are all that Run knows.
var modes = []mode{
	{"cram", false, true, cram},          // fills its rings and takes no completion
	{"clog", false, true, clog},          // posts sends and buffers that nobody answers, tries others' receive queues
	{"verbs", true, true, verbs},         // posts malformed atomics, pieces, redirections, messages and composed ones
	{"scribble", true, false, scribble},  // writes noise over indices and entries of its rings
	{"flood", true, false, flood},        // fills its ring with operations for connections that do not exist
	{"credit", true, false, credit},      // returns credit it never had
	{"wipe", true, false, wipe},          // punches holes into the memory of its rings
	{"control", false, false, control},   // sends requests without end
	{"punch", false, false, punch},       // punches holes into registered memory, under operations if there is a peer
	{"jam", false, true, jam},            // fills its doorbell: a daemon that rings it by a write would wait for ever
	{"refill", false, false, refill},     // registers memory and punches holes into it, to get more than there is
	{"hoard", false, false, hoard},       // registers small regions until it is refused, gives some back, and again
	{"spaces", false, true, spaces},      // maps spaces, floods advice, and has peers' bytes come to where nothing is
	{"usage", false, false, usage},       // asks without end how much of a very large space is resident
	{"truncate", false, false, truncate}, // tries to shrink and to grow the memory it shares
	{"doorbell", false, false, doorbell}, // rings the daemon's doorbell without end
	{"burn", false, false, burn},         // breaks no rule, burns a processor: what the others are compared with
	{"spin", false, false, spin},         // claims to poll and never sleeps
}

// indexStride is how far apart the indices and sleep words lie at the start of the rings.
const indexStride = 128

// batch is how many acts are done between two looks at the clock.
const batch = 256

func scribble(c *client, r *rand.Rand) (uint64, error) {
	for range batch {
		at := r.IntN(len(c.Mem)/8) * 8
		if r.IntN(4) > 0 { // mostly the indices
			at = r.IntN(7) * indexStride
		}
		binary.LittleEndian.PutUint64(c.Mem[at:], r.Uint64())
	}
	c.Bell.Ring()
	return batch, nil
}

func flood(c *client, r *rand.Rand) (uint64, error) {
	return c.post(&ipc.SQE{Op: ipc.OpWrite, Conn: ^c.link, Region: c.region, Len: 64, Token: r.Uint64()}, depth)
}

func credit(c *client, r *rand.Rand) (uint64, error) {
	return c.post(&ipc.SQE{Op: ipc.OpCredit, Conn: c.link, Imm: 1}, 1<<62)
}

func control(c *client, r *rand.Rand) (uint64, error) {
	kinds := []ipc.Kind{ipc.KindStatus, ipc.KindListen, ipc.KindUnlisten, ipc.KindRegister, ipc.KindDeregister,
		ipc.KindDial, ipc.KindRevoke, 9999}
	for n := range uint64(batch) {
		c.ID++
		m := &ipc.Message{ID: c.ID, Kind: kinds[r.IntN(len(kinds))], Service: "x", Peer: "nobody", Size: 4096,
			Region: r.Uint32(), Conn: r.Uint32(), Timeout: 1}
		if err := c.Conn.Send(m); err != nil {
			return n, err
		}
	}
	return batch, nil
}

// What is under way while holes are punched: little, since other users are measured beside the holes and not the load.
const (
	punchSize  = 4096 // bytes
	punchDepth = 2    // operations
)

const punchHole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE

func wipe(c *client, r *rand.Rand) (uint64, error) {
	if _, err := c.post(&ipc.SQE{Op: ipc.OpWrite, Conn: ^c.link, Token: r.Uint64()}, depth); err != nil {
		return 1, nil // our own view of the indices is spoilt by now, too
	}
	if binary.LittleEndian.Uint32(c.Mem[indexStride:]) == 0 {
		return 0, nil // the daemon has taken nothing yet, and zeros are where it is
	}
	if err := unix.Fallocate(c.RingsFD, punchHole, 0, int64(len(c.Mem))); err != nil {
		return 0, err
	}
	c.Bell.Ring()
	return 1, nil
}

func punch(c *client, r *rand.Rand) (uint64, error) {
	if c.link != 0 {
		op := ipc.OpWrite + ipc.Op(r.IntN(2))
		if _, err := c.post(&ipc.SQE{Op: op, Conn: c.link, Key: c.key, Region: c.region, Len: punchSize,
			Token: r.Uint64()}, punchDepth); err != nil {
			return 0, err
		}
	}
	// the daemon has sealed it against that
	if unix.Fallocate(c.regionFD, punchHole, 0, int64(punchSize+r.IntN(regionSize-punchSize))) == nil {
		c.did.Holes++
	}
	return 1, nil
}

func jam(c *client, r *rand.Rand) (uint64, error) {
	if err := unix.SetNonblock(c.Complete, true); err != nil { // or it is we who wait
		return 0, err
	}
	full := binary.LittleEndian.AppendUint64(nil, 1<<64-2)
	_, _ = unix.Write(c.Complete, full) // as far as it can
	if err := unix.SetNonblock(c.Complete, false); err != nil {
		return 0, err
	}
	c.Rings.SetClientAsleep(true)
	if c.link == 0 {
		return 1, nil
	}
	_, err := c.post(&ipc.SQE{Op: ipc.OpWrite, InlineLen: 8, Conn: c.link, Key: c.key, Token: r.Uint64()}, punchDepth)
	return 1, err
}

func refill(c *client, r *rand.Rand) (uint64, error) {
	fd, err := c.more(regionSize)
	if err != nil {
		return 1, c.full(err)
	}
	defer unix.Close(fd)
	if unix.Fallocate(fd, punchHole, 0, regionSize) == nil {
		c.did.Holes++
	}
	return 1, nil
}

func hoard(c *client, r *rand.Rand) (uint64, error) {
	fd, err := c.more(4096)
	if err != nil {
		return 1, c.full(err)
	}
	return 1, unix.Close(fd)
}

// truncate fails when the memory is sealed as it should be; where it is not, the daemon faults.
func truncate(c *client, r *rand.Rand) (uint64, error) {
	for _, fd := range []int{c.RingsFD, c.regionFD} {
		unix.Ftruncate(fd, int64(r.IntN(2*regionSize)))
	}
	return 2, nil
}

func doorbell(c *client, r *rand.Rand) (uint64, error) {
	for range batch {
		c.Bell.Ring()
	}
	return batch, nil
}

func spin(c *client, r *rand.Rand) (uint64, error) {
	c.Rings.SetClientPolling(ipc.Polls)
	c.Rings.SetClientAwaits(r.Uint32())
	c.Rings.SetClientAsleep(true)
	for range batch {
		c.CQ.Ready()
	}
	return batch, nil
}

func burn(c *client, r *rand.Rand) (uint64, error) {
	for range batch {
		r.Uint64()
	}
	return batch, nil
}

// space is a space that was mapped.
type space struct {
	region uint32
	size   uint64
}

// mostSpaces is how many it has at once, at most.
const mostSpaces = 8

// spaces maps spaces up to the largest there can be, advises all over them, ranges beyond their ends included, and has
// peers' bytes come to places in them that were never touched.
func spaces(c *client, r *rand.Rand) (uint64, error) {
	if len(c.spaces) == 0 || len(c.spaces) < mostSpaces && r.IntN(64) == 0 {
		if err := c.mapSpace(r); err != nil {
			return 1, err
		}
	}
	if len(c.spaces) == 0 {
		return 1, nil
	}
	i := r.IntN(len(c.spaces))
	s := c.spaces[i]
	off := r.Uint64N(s.size)
	n := min(s.size-off, 64<<10)
	for range 8 {
		_, err := c.post(&ipc.SQE{Op: ipc.OpRead, Conn: c.link, Key: c.key, Region: s.region, LocalOff: off, Len: n,
			Token: r.Uint64()}, depth/2)
		if err != nil {
			return 0, err
		}
		off = r.Uint64N(s.size - n + 1)
	}
	m := &ipc.Message{Kind: ipc.KindAdvise, Region: s.region, Size: s.size}
	switch k := r.IntN(16); {
	case k == 0:
		m = &ipc.Message{Kind: ipc.KindUsage, Region: s.region, Size: s.size}
	case k == 1:
		m.Off, m.Size, m.Advice = r.Uint64(), r.Uint64(), ipc.Advice(r.Uint32N(8))
	case k == 2:
		m.Off, m.Size, m.Advice = off, n, ipc.AdviceHold
	default:
		m.Advice = []ipc.Advice{ipc.AdvicePrefetch, ipc.AdviceRelease, ipc.AdviceEvict}[k%3]
	}
	_, err := c.demand(m)
	if _, refused := err.(*ipc.Error); refused {
		c.did.Refusals++
		err = nil
	}
	if err == nil && len(c.spaces) == mostSpaces { // while peers' bytes come there
		if _, err = c.demand(&ipc.Message{Kind: ipc.KindDeregister, Region: s.region}); err == nil {
			c.spaces = append(c.spaces[:i], c.spaces[i+1:]...)
		} else if _, busy := err.(*ipc.Error); busy {
			err = nil
		}
	}
	return 1, err
}

// usageSpace is the size of the space that usage asks about, in chunks of the least size: the daemon has as many tables
// to go through as there can be for its memory.
const usageSpace = 500 << 30

// usage maps a space, and asks about all of it.
func usage(c *client, _ *rand.Rand) (uint64, error) {
	if len(c.spaces) == 0 {
		a, err := c.demand(&ipc.Message{Kind: ipc.KindMap, Size: usageSpace,
			Space: ipc.Space{Pin: 64 << 10, Chunk: 4 << 10}})
		ipc.CloseFDs(a.fds)
		if err != nil {
			return 0, err
		}
		c.spaces = append(c.spaces, space{a.m.Region, usageSpace})
		if _, err := c.demand(&ipc.Message{Kind: ipc.KindMapped, Region: a.m.Region}); err != nil {
			return 0, err
		}
	}
	_, err := c.demand(&ipc.Message{Kind: ipc.KindUsage, Region: c.spaces[0].region, Size: usageSpace})
	if err == nil {
		c.did.Completed++
	}
	return 1, err
}

// mapSpace maps one more, or is refused.
func (c *client) mapSpace(r *rand.Rand) error {
	size := uint64(1) << (20 + r.IntN(28))
	a, err := c.demand(&ipc.Message{Kind: ipc.KindMap, Size: size, Space: ipc.Space{Pin: 1 << (22 + r.IntN(8)),
		Chunk: uint32(4<<10) << r.IntN(10), Policy: r.Uint32N(5), Huge: r.IntN(4) == 0}})
	ipc.CloseFDs(a.fds)
	if err == nil {
		c.spaces = append(c.spaces, space{a.m.Region, size})
		_, err = c.demand(&ipc.Message{Kind: ipc.KindMapped, Region: a.m.Region})
	}
	if _, ok := err.(*ipc.Error); ok {
		c.did.Refusals++
		return nil
	}
	return err
}
