package wire

// sumHeaders is bulkSum of the headers at b, by the processor's instruction for CRC32C.
//
//go:noescape
func sumHeaders(b *byte) uint32

// features returns ECX of CPUID's leaf 1.
func features() uint32

// sumsHeaders says that the processor has SSE 4.2, as every one has that was built since 2011.
var sumsHeaders = features()>>20&1 != 0
