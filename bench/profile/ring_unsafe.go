package profile

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is one processor's stream of samples: a page of words shared with the kernel, then the records.
type ring struct {
	fd   int
	mem  []byte
	data []byte
	meta *unix.PerfEventMmapPage
	tmp  []byte
	buf  [maxChain]uint64
}

const (
	pageSize  = 4096
	dataPages = 128 // a power of two
	frequency = 997 // samples per second and processor; prime, so as not to fall in step with timers
)

// openRing starts sampling a processor.
func openRing(cpu int) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: frequency,
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CALLCHAIN,
		Bits:        unix.PerfBitFreq | unix.PerfBitExcludeCallchainUser | unix.PerfBitExcludeIdle,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, (1+dataPages)*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &ring{fd: fd, mem: mem, data: mem[pageSize:], meta: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])),
		tmp: make([]byte, 1<<16)}, nil
}

func (r *ring) close() error { return errors.Join(unix.Munmap(r.mem), unix.Close(r.fd)) }

// drain hands every record that has arrived to f.
func (r *ring) drain(f func(*sample)) {
	head, tail := atomic.LoadUint64(&r.meta.Data_head), r.meta.Data_tail
	for head-tail >= recordHeader {
		h := r.at(tail, recordHeader)
		kind, misc, size := binary.NativeEndian.Uint32(h), binary.NativeEndian.Uint16(h[4:]),
			uint64(binary.NativeEndian.Uint16(h[6:]))
		if size < recordHeader || size > head-tail {
			tail = head // nothing the kernel writes
			break
		}
		if kind == recordSample {
			if s, ok := decode(misc, r.at(tail, int(size))[recordHeader:], r.buf[:0]); ok {
				f(&s)
			}
		}
		tail += size
	}
	atomic.StoreUint64(&r.meta.Data_tail, tail)
}

// at returns n bytes from position pos on, copied together when they wrap around.
func (r *ring) at(pos uint64, n int) []byte {
	from := int(pos % uint64(len(r.data)))
	if from+n <= len(r.data) {
		return r.data[from : from+n]
	}
	k := copy(r.tmp, r.data[from:])
	copy(r.tmp[k:n], r.data)
	return r.tmp[:n]
}
