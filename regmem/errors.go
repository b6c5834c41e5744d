package regmem

import (
	"errors"
	"fmt"
)

// The answers of Table.Resolve, in the order in which the checks are made. They are returned as they are, never
// wrapped, so that refusing an access allocates nothing. Each refuses one operation; the connection lives.
var (
	// ErrKey: the key was never granted, or has been revoked.
	ErrKey = errors.New("regmem: unknown or revoked key")
	// ErrOwner: the key exists but was granted to another connection.
	ErrOwner = errors.New("regmem: key belongs to another connection")
	// ErrPermission: the key does not allow this kind of access.
	ErrPermission = errors.New("regmem: access not permitted by the key")
	// ErrBounds: the range does not lie within the granted range.
	ErrBounds = errors.New("regmem: range outside the granted memory")
)

// Why memory could not be had, mapped or given back. They are found in wrapped errors by errors.Is.
var (
	// ErrMemlock: pinning would exceed RLIMIT_MEMLOCK, a *MemlockError, or what a control group may hold, a
	// *GroupError.
	ErrMemlock = errors.New("regmem: memory cannot be pinned")
	// ErrQuota: a limit set by the operator would be exceeded; from Quota the error is a *QuotaError.
	ErrQuota = errors.New("regmem: quota exceeded")
	// ErrSize: a size that no memory can have here: zero, negative, or larger than the machine.
	ErrSize = errors.New("regmem: impossible size")
	// ErrSeals: a descriptor whose size may still change under its reader, or is not the agreed one.
	ErrSeals = errors.New("regmem: not sealed shared memory of the agreed size")
	// ErrProcess: a descriptor that is not the memory of the process that sent it.
	ErrProcess = errors.New("regmem: not the memory of that process")
	// ErrBusy: the region is still reachable by a key or used by an operation in flight.
	ErrBusy = errors.New("regmem: region in use")
	// ErrClosed: the memory has been given back.
	ErrClosed = errors.New("regmem: memory is closed")
)

// MemlockError says by how much RLIMIT_MEMLOCK is too low. All values are bytes.
type MemlockError struct {
	Need   uint64 // what was to be pinned
	Locked uint64 // what the process had locked already
	Limit  uint64 // soft RLIMIT_MEMLOCK
}

func (e *MemlockError) Error() string {
	return fmt.Sprintf("regmem: cannot pin %d bytes: %d already locked and the process's limit is %d; raise it where "+
		"edged starts, or the program that embeds the transport: LimitMEMLOCK= in the systemd unit, \"ulimit -l\"; or "+
		"grant CAP_IPC_LOCK", e.Need, e.Locked, e.Limit)
}

// Unwrap makes errors.Is(err, ErrMemlock) hold.
func (e *MemlockError) Unwrap() error { return ErrMemlock }

// GroupError says that memory does not fit a control group beside what the process itself needs.
type GroupError struct {
	Need   uint64 // what was to be filled, in bytes
	Spared uint64 // what must stay free
	Group  Group
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("regmem: cannot pin %d bytes: control group %s holds %d bytes that cannot be reclaimed and "+
		"the limit is %d (%s), of which %d must stay free; "+
		"raise MemoryMax= and MemoryHigh= in the systemd unit or the container's memory limit, or lower limits.reserve",
		e.Need, e.Group.Dir, e.Group.Used, e.Group.Limit, e.Group.File, e.Spared)
}

// Unwrap makes errors.Is(err, ErrMemlock) hold.
func (e *GroupError) Unwrap() error { return ErrMemlock }

// QuotaError says which limit of a Quota a reservation would have exceeded.
type QuotaError struct {
	What  string // "pinned bytes" or "regions"
	Need  int    // what was asked for
	Used  int    // what is reserved already
	Limit int
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("regmem: quota of %d %s exceeded: %d in use, %d more wanted", e.Limit, e.What, e.Used, e.Need)
}

// Unwrap makes errors.Is(err, ErrQuota) hold.
func (e *QuotaError) Unwrap() error { return ErrQuota }
