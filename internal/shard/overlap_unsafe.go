package shard

import "unsafe"

// overlap reports whether two slices share a byte.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	at, bt := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return at < bt+uintptr(len(b)) && bt < at+uintptr(len(a))
}
