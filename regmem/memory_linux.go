package regmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// seals fix the size for ever. F_SEAL_SEAL keeps others from adding seals that would take writing away.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Option changes what Alloc does.
type Option func(*options)

type options struct {
	name     string
	unpinned bool
}

// Unpinned leaves the pages to the kernel until Pin is called: for memory that is pinned on demand, and for rings.
func Unpinned() Option { return func(o *options) { o.unpinned = true } }

// Named sets the name under which the memory appears in /proc/PID/maps, after "memfd:". The default is "multiedge".
func Named(name string) Option { return func(o *options) { o.name = name } }

// Alloc returns new sealed shared memory of size bytes, rounded up to whole pages, zeroed and pinned. The caller closes it.
//
// Errors wrap ErrSize (also where the machine does not have that much), ErrMemlock (as a *MemlockError or *GroupError) or the kernel's errno; after any
// error nothing is left behind. Pinning costs about 0.4 ms for each MiB, as the kernel zeroes the pages: keep it off the packet path.
func Alloc(size int, opts ...Option) (*Memory, error) {
	o := options{name: "multiedge"}
	for _, opt := range opts {
		opt(&o)
	}
	n, err := roundUp(size)
	if err != nil {
		return nil, err
	}
	if !o.unpinned {
		done, err := Reserve(n)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	fd, err := sealedFile(o.name, n)
	if err != nil {
		return nil, err
	}
	m, err := mapShared(fd, n)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	if o.unpinned {
		return m, nil
	}
	if err := m.Pin(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Map maps memory that another process allocated and passed the descriptor of; size is what the two agreed on (rounded up to pages). It is
// shared, writable and not pinned: the process that allocated it did that, and pins count for each mapping.
//
// The descriptor is not trusted: unless it is sealed memory of exactly that size, the error wraps ErrSeals. On success the Memory owns fd;
// after an error fd is still the caller's.
func Map(fd, size int) (*Memory, error) {
	n, err := roundUp(size)
	if err != nil {
		return nil, err
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor %d: %w; pass the one returned by Memory.FD", ErrSeals, fd, err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("%w: descriptor %d has seals %#x and needs %#x", ErrSeals, fd, got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil { // after the seals: now the size cannot change any more
		return nil, fmt.Errorf("regmem: fstat of descriptor %d: %w", fd, err)
	}
	if st.Size != int64(n) {
		return nil, fmt.Errorf("%w: descriptor %d has %d bytes, not %d", ErrSeals, fd, st.Size, n)
	}
	return mapShared(fd, n)
}

// sealedFile returns a descriptor of n bytes of anonymous memory whose size is sealed.
func sealedFile(name string, n int) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("regmem: memfd_create %q: %w", name, err)
	}
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%w: %d bytes: ftruncate: %w", ErrSize, n, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("regmem: sealing %q: %w", name, err)
	}
	return fd, nil
}

// mapShared maps fd and makes it the Memory's own; after an error it is still the caller's.
func mapShared(fd, n int) (*Memory, error) {
	buf, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if errors.Is(err, unix.ENOMEM) {
		return nil, fmt.Errorf("%w: no room in the address space for %d bytes: mmap: %w", ErrSize, n, err)
	}
	if err != nil {
		return nil, fmt.Errorf("regmem: mmap of %d bytes: %w", n, err)
	}
	return &Memory{buf: buf, fd: fd, unmap: (*Memory).unmapShared}, nil
}

func (m *Memory) unmapShared() error {
	return errors.Join(unix.Munmap(m.buf), unix.Close(m.fd)) // unmapping unlocks
}
