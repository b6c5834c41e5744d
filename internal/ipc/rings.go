package ipc

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ringSeals are what a rings memfd must carry, so that no access to the mapping can fault.
const ringSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Rings is one mapping of the shared memory of a client and the daemon. Each side has its own.
type Rings struct {
	mem    []byte
	layout Layout
	mapped bool

	features Features // in force: what submissions may ask for
}

// CreateRings makes the shared memory, zeroed and sealed, and maps it. The descriptor is the caller's, to send and to
// close.
func CreateRings(l Layout) (r *Rings, fd int, err error) {
	if err := l.Validate(); err != nil {
		return nil, -1, err
	}
	fd, err = unix.MemfdCreate("edge-rings", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, fmt.Errorf("ipc: rings: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(l.Size())); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, ringSeals)
	}
	// Its pages are there from now on, and cleared when they are first used: most clients use few of them.
	for again := err == nil; again; again = errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(fd, 0, 0, int64(l.Size()))
	}
	if err == nil {
		r, err = mapRings(fd, l, 0)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("ipc: rings: %w", err)
	}
	return r, fd, nil
}

// MapRings maps memory received from the daemon after checking its size and seals. The descriptor stays the caller's
// and may be closed at once.
func MapRings(fd int, l Layout) (*Rings, error) { return mapRings(fd, l, unix.MAP_POPULATE) }

func mapRings(fd int, l Layout, flags int) (*Rings, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("ipc: rings: fstat: %w", err)
	}
	if st.Size != int64(l.Size()) {
		return nil, fmt.Errorf("ipc: rings: memory of %d bytes, the layout needs %d", st.Size, l.Size())
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&ringSeals != ringSeals {
		return nil, fmt.Errorf("ipc: rings: memory is not sealed (seals %#x, %v)", seals, err)
	}
	mem, err := unix.Mmap(fd, 0, l.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, fmt.Errorf("ipc: rings: mmap: %w", err)
	}
	return &Rings{mem: mem, layout: l, mapped: true}, nil
}

// NewRings lays rings over mem, at least l.Size() bytes aligned to 64; for tests.
func NewRings(mem []byte, l Layout) (*Rings, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if len(mem) < l.Size() || !aligned(mem) {
		return nil, fmt.Errorf("ipc: rings need %d bytes aligned to 64", l.Size())
	}
	return &Rings{mem: mem[:l.Size()], layout: l}, nil
}

// Close unmaps the memory. Nothing may use the rings or the ends made from them afterwards.
func (r *Rings) Close() error {
	if !r.mapped {
		return nil
	}
	r.mapped = false
	return unix.Munmap(r.mem)
}

// Allow says which features are in force, before the daemon takes a submission; at first none is.
func (r *Rings) Allow(f Features) { r.features = f }

// Layout returns the sizes of the rings.
func (r *Rings) Layout() Layout { return r.layout }

func (r *Rings) sqEntry(i uint32) []byte {
	off := controlSize + int(i)*SQESize
	return r.mem[off : off+SQESize : off+SQESize]
}

func (r *Rings) cqEntry(i uint32) []byte {
	off := controlSize + int(r.layout.SQ)*SQESize + int(i)*CQESize
	return r.mem[off : off+CQESize : off+CQESize]
}

// The four ends. Each is made once per Rings, before any traffic: they assume indices of zero.

// SubmitProducer returns the client's end of the submission ring.
func (r *Rings) SubmitProducer() *SubmitProducer { return &SubmitProducer{r: r, mask: r.layout.SQ - 1} }

// SubmitConsumer returns the daemon's end of the submission ring.
func (r *Rings) SubmitConsumer() *SubmitConsumer { return &SubmitConsumer{r: r, mask: r.layout.SQ - 1} }

// CompleteProducer returns the daemon's end of the completion ring.
func (r *Rings) CompleteProducer() *CompleteProducer {
	return &CompleteProducer{r: r, mask: r.layout.CQ - 1}
}

// CompleteConsumer returns the client's end of the completion ring.
func (r *Rings) CompleteConsumer() *CompleteConsumer {
	return &CompleteConsumer{r: r, mask: r.layout.CQ - 1}
}

// SetDaemonAsleep is called with true by the daemon before it looks at its ring a last time and blocks, with false when
// it woke.
func (r *Rings) SetDaemonAsleep(on bool) { set(r, wordDaemonAsleep, on) }

// SetClientAsleep is the client's counterpart.
func (r *Rings) SetClientAsleep(on bool) { set(r, wordClientAsleep, on) }

// ClientAsleep is read by the daemon: a hint, as ClientPolling is.
func (r *Rings) ClientAsleep() bool { return r.word(wordClientAsleep).Load() != 0 }

// SetClientDozing is SetClientAsleep(true) by a client in which nobody waits for operations (ABI A8.3): the daemon does
// not wake it for those that complete well.
func (r *Rings) SetClientDozing() { r.word(wordClientAsleep).Store(dozing) }

// SetClientAwaits says for how many entries of the completion ring a client waits, whether it sleeps or polls (A8.8). 0
// and 1: for any.
func (r *Rings) SetClientAwaits(n uint32) { r.awaits().Store(n) }

// ClientAwaits is what SetClientAwaits said.
func (r *Rings) ClientAwaits() uint32 { return r.awaits().Load() }

// Polling is what a client says of a thread that polls (A8.5).
type Polling uint32

const (
	NotPolling   Polling = iota
	Polls                // for anything. Any other value means the same
	PollsForPeer         // nobody waits for operations: those that complete well are no reason to give way to it
)

// SetClientPolling says whether a thread of the client polls: the daemon then yields the processor to it when it gave
// it what it waits for.
func (r *Rings) SetClientPolling(p Polling) { r.word(wordClientPolling).Store(uint32(p)) }

// ClientPolling is read by the daemon. It is a hint: a client that lies only costs system calls that do nothing.
func (r *Rings) ClientPolling() Polling { return Polling(r.word(wordClientPolling).Load()) }

// PulseTime is how often a busy daemon gives its pulse.
const PulseTime = 250 * time.Millisecond

// BeatPulse is called by the daemon to show that it runs.
func (r *Rings) BeatPulse() { r.word(wordPulse).Add(1) }

// Pulse is read by the client: while it changes, the daemon runs.
func (r *Rings) Pulse() uint32 { return r.word(wordPulse).Load() }

// tell is called by the daemon when it has sent a packet on the control socket, the reply to hello first.
func (r *Rings) tell() { r.told().Add(1) }

// Told is read by the client: how many packets the daemon has sent. A client that has received as many need not look at
// the socket for more; of its end that says nothing. 0: the daemon does not count.
func (r *Rings) Told() uint32 { return r.told().Load() }

func set(r *Rings, word int, on bool) {
	var v uint32
	if on {
		v = asleep
	}
	r.word(word).Store(v)
}
