package ipc

// Space is what a client asks for with KindMap, and what the daemon made of it (A7.13).
type Space struct {
	Pin    uint64 // bytes that may be pinned at once
	Chunk  uint32 // bytes that are pinned together; 0: the daemon chooses
	Policy uint32 // regmem.Policy: what is evicted first
	Huge   bool   // in huge pages, where the kernel has them
	Hints  uint64 // reply: bytes of the hints, a bit for each chunk that is set while it is pinned; 0: there are none
}

// Advice is what a client says of a part of a space (A7.15).
type Advice uint32

const (
	AdvicePrefetch Advice = 1 // pin it soon
	AdviceHold     Advice = 2 // pin it, and keep it so until AdviceRelease; the reply comes then
	AdviceRelease  Advice = 3 // of the same range as AdviceHold
	AdviceEvict    Advice = 4 // unpin it
)

// Usage is what a space did (A5.23). All but the first two are counts since it was made.
type Usage struct {
	Resident uint64 // bytes of the range
	Pinned   uint64 // bytes of the whole space

	Lookups, Hits, Cold, Capacity, Pins, Evictions, Prefetched, Used, Wasted, Soft uint64
}

func (u *Usage) words() []*uint64 {
	return []*uint64{&u.Resident, &u.Pinned, &u.Lookups, &u.Hits, &u.Cold, &u.Capacity, &u.Pins, &u.Evictions,
		&u.Prefetched, &u.Used, &u.Wasted, &u.Soft}
}
