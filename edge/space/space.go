// Package space makes memory of which only the parts that operations use are pinned, within a budget, so that a program
// can offer more memory than it may pin. Such a space is an edge.Region; the functions here say what of it is to be
// pinned.
package space

import (
	"context"
	"fmt"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	MapSpace(ctx context.Context, d *edge.Device, size int, m ipc.Space, before func(a, b regmem.ChunkUse) bool) (
		*edge.Region, error)
	Advise(ctx context.Context, r *edge.Region, what ipc.Advice, off, n int) error
	Resident(r *edge.Region, off, n int) bool
	SpaceUsage(context.Context, *edge.Region) (ipc.Usage, error)
})

// Policy says which chunks of a space are unpinned first to make room for others.
type Policy = regmem.Policy

// Policies. Cyclic uses of more than may be pinned want MRU, most others LRU or LFU.
const (
	LRU    = regmem.LRU    // the least recently used
	MRU    = regmem.MRU    // the most recently used
	LFU    = regmem.LFU    // the least frequently used
	MFU    = regmem.MFU    // the most frequently used
	Random = regmem.Random // any
)

// Options are the properties of a space. The zero value is valid.
type Options struct {
	Pin    int    // bytes that may be pinned at once; the user is charged for them; 0: 64 MiB, or Map's size if less
	Chunk  int    // bytes that are pinned together, a power of two from 4 KiB to 2 MiB; 0: 64 KiB
	Policy Policy // which chunks are unpinned first; the zero value is LRU
	// the program's own policy, instead of Policy: whether a is unpinned before b. Only embedded transports take one.
	// They call it to make room, for samples of 16 chunks. It must be quick, and must neither wait nor use the Device.
	Before func(a, b ChunkUse) bool
	PrePin int  // bytes from the start that are pinned before Map returns, at most half of Pin
	Huge   bool // in huge pages where the kernel gives them; chunks are of 2 MiB unless Chunk says otherwise
}

// ChunkUse is what a policy knows of a chunk that is pinned.
type ChunkUse = regmem.ChunkUse

// defaultPin is how much of a space is pinned if Options do not say, in bytes.
const defaultPin = 64 << 20

// Map returns a space of dev: a Region of size bytes, up to 2^44, of which only the memory that operations use is
// resident. At most Options.Pin bytes of that are pinned. A space serves for Post and Export like any other Region. An
// operation waits for memory that was never pinned, or that was evicted on a host with swap (edge.Embedded.Misses);
// others go on. If the memory is not resident after a second, the operation fails with edge.ErrMemory.
//
// Memory that was used stays filled until the Region is closed, whether it is pinned or not. If the daemon filled it,
// it counts against limits.filled of the daemon. A space cannot be renewed by Region.Renew. An error that wraps
// edge.ErrMemlock, edge.ErrLimit or edge.ErrInvalid says what to change.
func Map(ctx context.Context, dev *edge.Device, size int, o Options) (*edge.Region, error) {
	if size <= 0 || size > regmem.MaxSpace {
		return nil, invalid("a space of %d bytes; ask for 1 to 2^44", size)
	}
	if o.Chunk < 0 || o.Chunk > regmem.MaxChunk || o.Pin < 0 || o.PrePin < 0 {
		return nil, invalid("Map: no option is negative, and Chunk is at most %d", regmem.MaxChunk)
	}
	if o.Pin == 0 {
		o.Pin = max(min(defaultPin, size), 4*max(o.Chunk, regmem.DefaultChunk))
	}
	if o.PrePin > o.Pin/2 || o.PrePin > size {
		return nil, invalid("Map: PrePin of %d bytes; at most half of Pin, %d, and of the size", o.PrePin, o.Pin)
	}
	r, err := core.MapSpace(ctx, dev, size, ipc.Space{Pin: uint64(o.Pin), Chunk: uint32(o.Chunk),
		Policy: uint32(o.Policy), Huge: o.Huge}, o.Before)
	if err != nil {
		return nil, err
	}
	if o.PrePin > 0 {
		err := Hold(ctx, r, 0, o.PrePin)
		if err == nil {
			err = Release(r, 0, o.PrePin)
		}
		if err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{edge.ErrInvalid}, args...)...)
}

// Resident reports whether bytes off to off+n of r are pinned, as far as this process can see without asking the
// daemon. The answer may be out of date; use it to choose what to post first. What is not pinned need not miss: with
// misses = "inline" it is used at once if it was pinned before. It takes some nanoseconds. All of a registered Region
// is resident.
func Resident(r *edge.Region, off, n int) bool { return core.Resident(r, off, n) }

// Prefetch asks that bytes off to off+n of r be pinned soon, as far as there is room. On registered memory it does
// nothing.
func Prefetch(r *edge.Region, off, n int) error {
	return core.Advise(context.Background(), r, ipc.AdvicePrefetch, off, n)
}

// Hold pins bytes off to off+n of r and returns once they are pinned. If they are not after a second, it fails with
// edge.ErrMemory. They stay pinned until Release of the same range, which must follow each Hold. At most half of what
// the space may pin can be held at once.
func Hold(ctx context.Context, r *edge.Region, off, n int) error {
	return core.Advise(ctx, r, ipc.AdviceHold, off, n)
}

// Release ends one Hold of the same range.
func Release(r *edge.Region, off, n int) error {
	return core.Advise(context.Background(), r, ipc.AdviceRelease, off, n)
}

// Evict unpins bytes off to off+n of r, except those that are held or about to be used. Their contents stay, and the
// memory stays filled.
func Evict(r *edge.Region, off, n int) error {
	return core.Advise(context.Background(), r, ipc.AdviceEvict, off, n)
}

// Usage counts what a space did since Map. Pinned is a size; all others are counts.
type Usage struct {
	Pinned         int    // bytes, or about to be
	Lookups, Hits  uint64 // uses by parts of operations; those that found all of it resident
	Soft           uint64 // of the hits, those that found some of it there but not pinned (misses = "inline")
	Cold, Capacity uint64 // chunks missed that were not resident before; that had been evicted
	Pins           uint64 // chunks
	Evictions      uint64
	Prefetched     uint64 // chunks pinned before an operation asked
	Used, Wasted   uint64 // of those: used before they were evicted, or not
}

// UsageOf asks the daemon for the counts of a space.
func UsageOf(ctx context.Context, r *edge.Region) (Usage, error) {
	u, err := core.SpaceUsage(ctx, r)
	if err != nil {
		return Usage{}, err
	}
	return Usage{Pinned: int(u.Pinned), Lookups: u.Lookups, Hits: u.Hits, Soft: u.Soft, Cold: u.Cold,
		Capacity: u.Capacity, Pins: u.Pins, Evictions: u.Evictions, Prefetched: u.Prefetched, Used: u.Used,
		Wasted: u.Wasted}, nil
}
