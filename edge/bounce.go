package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/mono"
)

// The bounce arena lends registered memory to ReadAt and WriteAt, whose p is ordinary memory: WriteAt copies p in,
// chunk by chunk, and waits for the writes; ReadAt waits for the reads and copies out. It is made at the first use, of
// one region, and gets another region whenever a call finds no slot free, up to Config.Bounce.
const (
	bounceChunk = 64 << 10 // bytes of a slot
	bounceSlots = 32       // of a region: 2 MiB
	bounceDepth = 8        // slots one call uses at once
	bounceBlock = bounceChunk * bounceSlots
	bounceMost  = 1 << 14 // slots: their numbers are of 16 bits
)

// bounceAbandoned marks the state of a slot whose call has returned. The rest of the state is then the key of the
// operation whose completion frees the slot. A state of 0 is a slot that is lent or free.
const bounceAbandoned = 1 << 31

type bounceArena struct {
	d      *attachment
	blocks []atomic.Pointer[Region] // as many as Config.Bounce allows
	made   atomic.Int32             // of them; grows under attachment.bounceTurn
	// mono.Time before which no more is registered: it was refused, for a limit, or the daemon was silent
	refused atomic.Int64
	mu      sync.RWMutex // copies against the unmapping of blocks
	gone    bool
	free    chan int16 // never full: there are as many places as slots
	state   []atomic.Uint64
	wanting atomic.Int32  // calls that wait for a slot
	waits   atomic.Uint64 // calls that have waited so far
}

func (d *attachment) arena(ctx context.Context) (*bounceArena, error) {
	if a := d.bounce.Load(); a != nil {
		return a, nil
	}
	select {
	case d.bounceTurn <- struct{}{}:
		defer func() { <-d.bounceTurn }()
	case <-ctx.Done():
		return nil, d.ended(ctx)
	}
	if a := d.bounce.Load(); a != nil {
		return a, nil
	}
	blocks := d.cfg.Bounce / bounceBlock
	a := &bounceArena{d: d, blocks: make([]atomic.Pointer[Region], blocks),
		free: make(chan int16, blocks*bounceSlots), state: make([]atomic.Uint64, blocks*bounceSlots)}
	if err := a.extend(ctx); err != nil {
		return nil, fmt.Errorf("edge: memory for ReadAt and WriteAt: %w", err)
	}
	d.bounce.Store(a)
	return a, nil
}

// extend adds a region. The caller has attachment.bounceTurn.
func (a *bounceArena) extend(ctx context.Context) error {
	r, err := a.d.register(ctx, bounceBlock)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone { // the attachment ended meanwhile
		a.d.dev.unmap(r)
		return a.d.Err()
	}
	n := a.made.Load()
	a.blocks[n].Store(r)
	a.made.Store(n + 1)
	for i := range int16(bounceSlots) {
		a.free <- int16(n)*bounceSlots + i
	}
	return nil
}

// grow adds a region for a call that found no slot, and returns whether to look again: others may have taken the new
// slots. A call that may not grow the arena waits for the others' slots, which come back.
func (a *bounceArena) grow(ctx context.Context) bool {
	if int(a.made.Load()) == len(a.blocks) || mono.Now() < mono.Time(a.refused.Load()) {
		return false
	}
	select {
	case a.d.bounceTurn <- struct{}{}:
		defer func() { <-a.d.bounceTurn }()
	case b := <-a.free: // another call is done before the one that grows it
		a.free <- b // which has room for all slots
		return true
	case <-ctx.Done():
		return false
	}
	if len(a.free) > 0 {
		return true
	}
	if int(a.made.Load()) == len(a.blocks) || mono.Now() < mono.Time(a.refused.Load()) {
		return false
	}
	if err := a.extend(ctx); err != nil {
		if ctx.Err() == nil { // others may give memory back
			a.refused.Store(int64(mono.Now().Add(time.Second)))
		}
		return false
	}
	a.called()
	return true
}

// block is the region of a slot, and where the slot is in it.
func (a *bounceArena) block(b int16) (r *Region, off int) {
	return a.blocks[b/bounceSlots].Load(), int(b%bounceSlots) * bounceChunk
}

// borrow waits for a slot. It takes completions meanwhile: when all slots are abandoned, nobody else may be there to do
// so.
func (a *bounceArena) borrow(ctx context.Context) (int16, error) {
	d := a.d
	a.wanting.Add(1)
	defer a.wanting.Add(-1)
	for waited := false; ; {
		select {
		case b := <-a.free:
			return b, nil
		default:
		}
		if err := d.Err(); err != nil {
			return 0, err
		}
		if a.grow(ctx) {
			continue
		}
		if !waited {
			waited = true
			a.waits.Add(1)
		}
		if err := d.wait(ctx, waiter{kind: waitBounce}); err != nil {
			return 0, err
		}
	}
}

// giveBack frees a slot and lets those look who wait for one, the leader too.
func (a *bounceArena) giveBack(b int16) {
	a.free <- b
	a.called()
}

// called lets those look who wait for a slot.
func (a *bounceArena) called() {
	if a.wanting.Load() > 0 {
		a.d.lead.wakeAll(false)
		a.d.kick()
	}
}

// abandon gives up a slot that op may still use.
func (a *bounceArena) abandon(b int16, op Op) {
	key := opKey(op.slot, op.gen)
	a.state[b].Store(key | bounceAbandoned)
	if op.d == nil || op.settled() {
		a.completed(b, key)
	}
}

// completed frees slot b if it was abandoned; the leader calls it after the operation has settled.
func (a *bounceArena) completed(b int16, key uint64) {
	if a.state[b].CompareAndSwap(key|bounceAbandoned, 0) {
		a.giveBack(b)
	}
}

// fill copies p into slot b, and drain the slot into p.
func (a *bounceArena) fill(b int16, p []byte) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.gone {
		return a.d.Err()
	}
	r, off := a.block(b)
	copy(r.bytes[off:], p)
	return nil
}

func (a *bounceArena) drain(p []byte, b int16) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.gone {
		return a.d.Err()
	}
	r, off := a.block(b)
	copy(p, r.bytes[off:])
	return nil
}

// retire ends all copying and takes the memory away.
func (a *bounceArena) retire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	for i := range a.made.Load() {
		a.d.dev.unmap(a.blocks[i].Load())
	}
}

// WriteAt writes p to the remote memory and returns when it is complete there. On error, n bytes from the start are
// complete and any others may be. p is copied through pinned memory that all calls of ReadAt and WriteAt of a Device
// share, in chunks of 64 KiB, each at most eight at once: Config.Bounce bounds it, and calls that find none wait.
func (r *RemoteRegion) WriteAt(p []byte, off int64) (n int, err error) {
	return r.WriteAtContext(context.Background(), p, off)
}

// ReadAt reads remote memory into p. It returns io.EOF only when the memory ends before p does. When the peer has
// closed the connection, it returns ErrReset.
func (r *RemoteRegion) ReadAt(p []byte, off int64) (n int, err error) {
	return r.ReadAtContext(context.Background(), p, off)
}

// WriteAtContext is WriteAt that gives up waiting when ctx ends. What was started may still be written then; p is not
// used any more.
func (r *RemoteRegion) WriteAtContext(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || off > r.size || int64(len(p)) > r.size-off {
		return 0, fmt.Errorf("%w: %d bytes at %d, of %d", ErrBounds, len(p), off, r.size)
	}
	return r.transfer(ctx, Write, p, off)
}

// ReadAtContext is ReadAt that gives up waiting when ctx ends.
func (r *RemoteRegion) ReadAtContext(ctx context.Context, p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, fmt.Errorf("%w: offset %d", ErrBounds, off)
	case off >= r.size && len(p) > 0:
		return 0, io.EOF
	case len(p) == 0 || int64(len(p)) <= r.size-off:
		return r.transfer(ctx, Read, p, off)
	}
	n, err := r.transfer(ctx, Read, p[:r.size-off], off)
	if err == nil {
		err = io.EOF
	}
	return n, err
}

// pipeline is the chunks of one ReadAt or WriteAt in flight, a ring.
type pipeline struct {
	ops    [bounceDepth]Op
	slots  [bounceDepth]int16
	lens   [bounceDepth]int
	head   int // oldest
	n      int
	posted int // bytes
	done   int // bytes complete from the start
}

func (r *RemoteRegion) transfer(ctx context.Context, kind Kind, p []byte, off int64) (int, error) {
	n, err := r.move(ctx, kind, p, off)
	if errors.Is(err, ErrPeerClosed) {
		err = ErrReset // io.EOF is for the end of the memory
	}
	return n, err
}

func (r *RemoteRegion) move(ctx context.Context, kind Kind, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, r.conn.usable()
	}
	a, err := r.conn.d.arena(ctx)
	if err != nil {
		return 0, err
	}
	var t pipeline
	for err == nil && t.done < len(p) {
		if t.posted == len(p) || t.n == bounceDepth {
			err = t.retire(ctx, a, kind, p)
		} else {
			err = r.advance(ctx, a, &t, kind, p, off)
		}
	}
	for err != nil && t.n > 0 {
		a.abandon(t.slots[t.head], t.ops[t.head])
		t.head, t.n = (t.head+1)%bounceDepth, t.n-1
	}
	return t.done, err
}

// advance posts the next chunk; without a free slot it waits for a chunk of its own first, so that calls cannot starve
// each other.
func (r *RemoteRegion) advance(ctx context.Context, a *bounceArena, t *pipeline, kind Kind, p []byte, off int64) error {
	var b int16
	select {
	case b = <-a.free:
	default:
		if t.n > 0 {
			return t.retire(ctx, a, kind, p)
		}
		var err error
		if b, err = a.borrow(ctx); err != nil {
			return err
		}
	}
	n := min(bounceChunk, len(p)-t.posted)
	if kind == Write {
		if err := a.fill(b, p[t.posted:t.posted+n]); err != nil {
			return err
		}
	}
	local, at := a.block(b)
	w := Work{Kind: kind, Local: local, LocalOff: at, Len: n, Remote: r, RemoteOff: int(off) + t.posted}
	op, err := r.conn.d.postAll(ctx, poster{r.conn, nil, b}, []*Work{&w})
	if err != nil {
		a.giveBack(b)
		return err
	}
	i := (t.head + t.n) % bounceDepth
	t.ops[i], t.slots[i], t.lens[i] = op, b, n
	t.n++
	t.posted += n
	return nil
}

// retire waits for the oldest chunk.
func (t *pipeline) retire(ctx context.Context, a *bounceArena, kind Kind, p []byte) error {
	i := t.head
	err := t.ops[i].Wait(ctx)
	if err != nil {
		return err // the caller abandons the chunk with the others
	}
	n := t.lens[i]
	if kind == Read {
		if err := a.drain(p[t.done:t.done+n], t.slots[i]); err != nil {
			return err
		}
	}
	t.done += n
	t.head, t.n = (t.head+1)%bounceDepth, t.n-1
	a.giveBack(t.slots[i])
	return nil
}
