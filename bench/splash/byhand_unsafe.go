package splash

import "unsafe"

// complexes and floats are the numbers in memory that begins at a multiple of 8.

func complexes(b []byte) []complex128 {
	return unsafe.Slice((*complex128)(unsafe.Pointer(&b[0])), len(b)/16)
}

func floats(b []byte) []float64 { return unsafe.Slice((*float64)(unsafe.Pointer(&b[0])), len(b)/8) }
