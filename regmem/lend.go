package regmem

// Lend makes memory of bytes that somebody else mapped, pinned and accounted for, and shares with this holder: release
// is called once, when it is closed. fd is a descriptor of the same memory, or -1; it stays the lender's.
func Lend(b []byte, fd int, release func() error) *Memory {
	return &Memory{buf: b[:len(b):len(b)], fd: fd, unmap: func(*Memory) error { return release() }}
}
