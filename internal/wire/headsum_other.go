//go:build !amd64

package wire

func sumHeaders(*byte) uint32 { panic("BUG: wire: no instruction sums headers here") }

const sumsHeaders = false
