package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/fnv"
	"sync/atomic"

	"multiedge/edge"
	"multiedge/edge/named"
)

// A table is slots of 8 words: a version, the key's hash, and a value of 48 bytes. A version is odd while the owner
// changes its slot, so a reader that finds the same even version before and after the value has a whole one
// (docs/MEMORY.md).
const (
	slots     = 128
	slotSize  = 64
	valueSize = slotSize - 16
)

// hashOf is never 0, which is the hash of a free slot.
func hashOf(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return h.Sum64() | 1
}

// table is the owner's side.
type table struct {
	exported *named.Memory
	mem      *edge.Region // what exported.Region returned last
}

func (t *table) word(slot, i int) *atomic.Uint64 { return t.mem.Uint64(slot*slotSize + 8*i) }

// put changes or adds a key. One goroutine at a time may do so.
func (t *table) put(ctx context.Context, key, value string) {
	if t.mem.Err() != nil { // edged was restarted; until it runs again t.mem stays the same
		t.mem, _ = t.exported.Region(ctx)
	}
	h := hashOf(key)
	slot := int(h % slots)
	for ; t.word(slot, 1).Load() != 0 && t.word(slot, 1).Load() != h; slot = (slot + 1) % slots {
	}
	var b [valueSize]byte
	copy(b[:], value)
	version := t.word(slot, 0)
	version.Add(1)
	t.word(slot, 1).Store(h)
	for i := range valueSize / 8 {
		t.word(slot, 2+i).Store(binary.NativeEndian.Uint64(b[8*i:]))
	}
	version.Add(1)
}

// reader is a client's side: the imported table, and memory for one slot and the versions before and after.
type reader struct {
	table *edge.RemoteRegion
	local *edge.Region
}

// Where in local reads put the version before and after the slot, which comes first.
const (
	before = slotSize
	after  = slotSize + 8
)

// get reads a key.
func (r *reader) get(ctx context.Context, key string) (value string, ok bool, err error) {
	h := hashOf(key)
	b := r.local.Bytes()
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	for slot := int(h % slots); ; {
		if err := r.read(ctx, slot*slotSize); err != nil {
			return "", false, err
		}
		switch {
		case word(before) != word(after) || word(before)%2 == 1: // it changed meanwhile: once more
		case word(8) == h:
			text, _, _ := bytes.Cut(b[16:slotSize], []byte{0})
			return string(text), true, nil
		case word(8) == 0:
			return "", false, nil
		default:
			slot = (slot + 1) % slots
		}
	}
}

// read reads the slot at an offset, and its version before and after: three reads that leave together, each behind a
// fence.
func (r *reader) read(ctx context.Context, at int) error {
	ops := make([]edge.Op, 3)
	part := func(k, off, to, n int) *edge.Work {
		return &edge.Work{Kind: edge.Read, Flags: edge.BackwardFence, Local: r.local, LocalOff: to, Len: n,
			Remote: r.table, RemoteOff: off, Op: &ops[k]}
	}
	if _, err := r.table.Conn().Post(ctx, part(0, at, before, 8), part(1, at, 0, slotSize),
		part(2, at, after, 8)); err != nil {
		return err
	}
	return edge.WaitAll(ctx, ops)
}
