package remap

import "unsafe"

// address returns where b begins. b must not be empty; it lies outside the Go heap, where nothing moves.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
