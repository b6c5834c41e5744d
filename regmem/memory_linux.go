package regmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// sizeSeals fix the size for ever. sealSeals keeps others from adding seals that would take writing away. holeSeals,
// which stands once all who share the memory have mapped it, ends every change but those through the mappings there
// are: no further one can be made for writing, and no holes be punched.
const (
	sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	sealSeals = unix.F_SEAL_SEAL
	holeSeals = unix.F_SEAL_FUTURE_WRITE
)

// Option changes what Alloc does.
type Option func(*options)

type options struct {
	name     string
	unpinned bool
	offered  bool
}

// Unpinned leaves the pages to the kernel until Pin is called: for memory that is pinned on demand, and for rings.
func Unpinned() Option { return func(o *options) { o.unpinned = true } }

// Offered makes memory for another process to Map, which is not trusted: Fix pins it when that process has done so.
func Offered() Option { return func(o *options) { o.offered, o.unpinned = true, true } }

// Named sets the name under which the memory appears in /proc/PID/maps, after "memfd:". The default is "multiedge".
func Named(name string) Option { return func(o *options) { o.name = name } }

// Alloc returns new sealed shared memory of size bytes, rounded up to whole pages, zeroed and pinned. The caller closes
// it.
//
// Errors wrap ErrSize (also where the machine does not have that much), ErrMemlock (as a *MemlockError or *GroupError)
// or the kernel's errno; after any error nothing is left behind. Pinning costs about 0.4 ms for each MiB, as the kernel
// zeroes the pages: keep it off the packet path.
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
	seals := sizeSeals
	if !o.offered {
		seals |= sealSeals
	}
	fd, err := sealedFile(o.name, n, seals)
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

// Map maps memory that another process allocated and passed the descriptor of; size is what the two agreed on (rounded
// up to pages). It is shared, writable and not pinned: the process that allocated it did that, and pins count for each
// mapping.
//
// The descriptor is not trusted: unless it is sealed memory of exactly that size, the error wraps ErrSeals. On success
// the Memory owns fd; after an error fd is still the caller's.
func Map(fd, size int) (*Memory, error) {
	n, err := roundUp(size)
	if err != nil {
		return nil, err
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor %d: %w; pass the one returned by Memory.FD", ErrSeals, fd, err)
	}
	if got&sizeSeals != sizeSeals {
		return nil, fmt.Errorf("%w: descriptor %d has seals %#x and needs %#x", ErrSeals, fd, got, sizeSeals)
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

// Adopt maps memory that another process, which is not trusted, made and passed the descriptor of. It is Fixed next.
// The descriptor must be a memfd of exactly size bytes, whole pages that are not huge ones, whose size is sealed and
// nothing else: so nobody can make an access fault, and Fix can seal it against holes. Otherwise the error wraps
// ErrSeals. On success the Memory owns fd; after an error fd is still the caller's.
func Adopt(fd, size int) (*Memory, error) {
	// The seals are looked at first: of other files nothing else is asked, since a file system of the sender's could
	// take its time to answer.
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: the descriptor is no memfd: %w", ErrSeals, err)
	}
	if got&^sealExec != sizeSeals {
		return nil, fmt.Errorf("%w: the memfd has seals %#x; seal it with F_SEAL_SHRINK and F_SEAL_GROW (%#x) and "+
			"with nothing else, and register it once", ErrSeals, got, sizeSeals)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("regmem: fstatfs: %w", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("%w: the memfd has huge pages; make it without MFD_HUGETLB", ErrSeals)
	}
	if n, err := roundUp(size); err != nil {
		return nil, err
	} else if n != size {
		return nil, fmt.Errorf("%w: %d bytes are not whole pages; ask for %d", ErrSize, size, n)
	}
	return Map(fd, size)
}

const sealExec = unix.F_SEAL_EXEC // of memfds that cannot be executed, the default of some systems

// sealedFile returns a descriptor of n bytes of anonymous memory whose size is sealed.
func sealedFile(name string, n, seals int) (fd int, err error) {
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

// lateMost is the longest memory that Fix leaves to be filled and locked page by page, as it is used. Programs that
// come and go use little of the memory of their streams, and filling all of it takes longer than what they do. The data
// thread waits for the first use of a page, for two or three pages with each frame.
const lateMost = 4 << 20

// Fix makes offered memory what Alloc returns otherwise, pinned, and more: from here on nobody can punch holes into
// it, so that every byte stays where it is paid for, and nobody can map it for writing who has not done so. The
// descriptor has served its purpose and is closed. After an error the memory is as it was, or without a descriptor;
// Close it.
//
// Memory of up to lateMost bytes gets its pages, but each is cleared, mapped and locked when it is first used. Where
// the kernel could swap it out before that, all is locked now.
func (m *Memory) Fix() error {
	switch {
	case m.buf == nil:
		return ErrClosed
	case m.fd < 0 || m.pinned:
		return errors.New("regmem: this memory was not offered, or is fixed already")
	}
	if _, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, holeSeals|sealSeals); err != nil {
		return fmt.Errorf("%w: it cannot be sealed against holes: %w; whoever it was offered to sealed it otherwise",
			ErrSeals, err)
	}
	done, err := Reserve(len(m.buf))
	if err != nil {
		m.CloseFD()
		return err
	}
	defer done()
	late := len(m.buf) <= lateMost && !Swaps() && fill(m.fd, len(m.buf)) == nil
	fd := m.fd
	m.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("regmem: close: %w", err)
	}
	if late {
		return m.pinLate()
	}
	return m.Pin()
}

// fill gives each of the first n bytes of a memfd its page, which is not cleared before it is used: then it cannot be
// lacking. It may wait for whoever else has the descriptor.
func fill(fd, n int) (err error) {
	for {
		if err = unix.Fallocate(fd, 0, 0, int64(n)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// CloseFD closes the descriptor, if there is one, which nobody is to get any more. The bytes stay.
func (m *Memory) CloseFD() {
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

func (m *Memory) unmapShared() error {
	err := unix.Munmap(m.buf) // unmapping unlocks
	if m.fd >= 0 {
		err = errors.Join(err, unix.Close(m.fd))
	}
	return err
}
