package remap

import (
	"errors"
	"fmt"
	"sync/atomic"

	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Shared is a Space in memory of this process. The file has one more window, in order and never changed, by which all
// its pages are pinned and accounted for; so pages stay pinned wherever they are shown.
type Shared struct {
	*Space
	file *regmem.Memory
	id   Identity
	refs atomic.Int32
}

// NewShared returns zeroed, pinned memory of size bytes, rounded up to whole pages, with its pool. Errors are
// regmem.Alloc's. It is the caller's: Close gives it back.
func NewShared(size int, o Options) (_ *Shared, err error) {
	o.normalize(size)
	pool := o.Extent * o.Extents
	file, err := regmem.Alloc(up(size, o.Grain)+pool, regmem.Named("edge-exchange"))
	if err != nil {
		return nil, err
	}
	s := &Shared{file: file, id: IdentityOf(file.FD())}
	var view, buffers []byte
	if view, err = window(file.FD(), 0, pages(size)); err == nil {
		if buffers, err = window(file.FD(), int64(up(size, o.Grain)), pool); err != nil {
			err = errors.Join(err, unix.Munmap(view))
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.Space = newSpace(view, buffers, o, fileWindows(file.FD()))
	s.refs.Store(1)
	return s, nil
}

// pages rounds up to whole pages.
func pages(n int) int { return (n + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1) }

// window maps and fills part of the file.
func window(fd int, offset int64, n int) ([]byte, error) {
	b, err := unix.Mmap(fd, offset, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("remap: mmap of %d bytes: %w", n, err)
	}
	return b, nil
}

// Pinned is how many bytes are pinned for it, the pool included.
func (s *Shared) Pinned() int { return s.file.Len() }

// Identity tells the memory of one Shared from every other's, whatever descriptor refers to it.
type Identity struct{ device, inode uint64 }

// IdentityOf returns the identity of the memory that fd refers to; the zero value if it refers to nothing.
func IdentityOf(fd int) Identity {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return Identity{}
	}
	return Identity{uint64(st.Dev), st.Ino}
}

// Identity returns the memory's.
func (s *Shared) Identity() Identity { return s.id }

// Memory returns the region as memory to register. It holds the Space until it is closed. At least one other holder
// must be left meanwhile.
func (s *Shared) Memory() *regmem.Memory {
	s.refs.Add(1)
	return regmem.Lend(s.view, s.file.FD(), s.Close)
}

// Close gives up one hold, on any goroutine; with the last one everything is unmapped and unpinned. The Exchanger must
// have removed the Space before the owner of the Exchanger closes its own.
func (s *Shared) Close() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	return errors.Join(unix.Munmap(s.view), unix.Munmap(s.pool), s.file.Close())
}

// fileWindows shows parts of the file of that descriptor.
type fileWindows int

func (w fileWindows) show(mem []byte, offset int64) error {
	if err := mapOver(int(w), offset, mem); err != nil {
		return fmt.Errorf("remap: mmap of %d bytes over a region: %w", len(mem), err)
	}
	return nil
}
