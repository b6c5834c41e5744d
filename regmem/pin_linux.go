package regmem

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Pin locks all pages in place, filling those never touched (paper 2.3.1). It does nothing to pinned memory. Errors
// wrap ErrClosed, ErrMemlock (as a *MemlockError) or the kernel's errno, and leave nothing pinned.
func (m *Memory) Pin() error {
	switch {
	case m.buf == nil:
		return ErrClosed
	case m.unmap == nil:
		return errors.New("regmem: wrapped bytes cannot be pinned; use memory from Alloc or Map")
	case m.pinned:
		return nil
	}
	if err := unix.Mlock(m.buf); err != nil {
		unix.Munlock(m.buf) // a lock that failed half way has locked the first half
		return pinError(uint64(len(m.buf)), err)
	}
	m.setPinned(true)
	return nil
}

// pinLate has the kernel lock each page when it is first used. What the limits have to say, they say now.
func (m *Memory) pinLate() error {
	if err := lockOnFault(m.buf); err != nil {
		return pinError(uint64(len(m.buf)), err)
	}
	m.setPinned(true)
	return nil
}

// Unpin lets the kernel move and reclaim the pages again; their contents stay. No operation may be in flight on them
// (Region.InFlight).
func (m *Memory) Unpin() error {
	if m.buf == nil {
		return ErrClosed
	}
	if !m.pinned {
		return nil
	}
	if err := unix.Munlock(m.buf); err != nil {
		return fmt.Errorf("regmem: munlock of %d bytes: %w", len(m.buf), err)
	}
	m.setPinned(false)
	return nil
}

// pinError tells the limit from the other reasons for which mlock fails: it answers ENOMEM beyond the limit, EPERM
// where the limit is zero, and EAGAIN where there are no pages.
func pinError(need uint64, err error) error {
	var limit unix.Rlimit
	if e := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); e == nil {
		locked, _ := procBytes("/proc/self/status", "VmLck:")
		overLimit := locked > limit.Cur || need > limit.Cur-locked
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) && overLimit {
			return &MemlockError{Need: need, Locked: locked, Limit: limit.Cur}
		}
	}
	return fmt.Errorf("regmem: mlock of %d bytes: %w; the machine or its control group may be out of memory", need, err)
}

// procBytes reads a line "name: value kB" of a file in /proc.
func procBytes(file, name string) (bytes uint64, ok bool) {
	text, err := readText(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(text) {
		var label, unit string
		n, _ := fmt.Sscanf(line, "%s %d %s", &label, &bytes, &unit)
		if n == 3 && label == name && unit == "kB" {
			return bytes << 10, true
		}
	}
	return 0, false
}
