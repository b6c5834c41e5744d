package profile

import "encoding/binary"

// sample is one record of the kernel: a process was at ip, in the kernel (chain: who called whom, innermost first) or
// not.
type sample struct {
	pid    int
	ip     uint64
	kernel bool
	chain  []uint64
}

// Of perf_event records, see perf_event_open(2).
const (
	recordSample  = 9
	recordHeader  = 8
	modeMask      = 7
	modeKernel    = 1
	contextMarker = 0xFFFF_FFFF_FFFF_F000 // chain entries from here on say what follows
	maxChain      = 24
)

// decode reads one record, body without its header, of type PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN.
// The chain uses buf.
func decode(misc uint16, body []byte, buf []uint64) (s sample, ok bool) {
	if len(body) < 24 {
		return s, false
	}
	s.ip = binary.NativeEndian.Uint64(body)
	s.pid = int(binary.NativeEndian.Uint32(body[8:]))
	s.kernel = misc&modeMask == modeKernel
	n := binary.NativeEndian.Uint64(body[16:])
	if n > uint64(len(body)-24)/8 {
		return s, false
	}
	s.chain = buf[:0]
	for i := range n {
		if a := binary.NativeEndian.Uint64(body[24+8*i:]); a < contextMarker && len(s.chain) < maxChain {
			s.chain = append(s.chain, a)
		}
	}
	return s, true
}
