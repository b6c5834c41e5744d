package trace

import (
	"encoding/binary"
	"fmt"
)

// Lookup is a range of memory that a part of an operation used. It is the Data of a Record of a trace of lookups.
type Lookup struct {
	PID    int32  // of the process that registered the memory
	Region uint32 // its number for it
	Size   uint64 // of the region, in bytes
	Off    uint64 // within it
	Len    uint32
	Site   uint8 // regmem.Site
}

const (
	lookupLen   = 32
	lookupSites = 4
)

// Append appends the form of l to b.
func (l *Lookup) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, l.Size)
	b = le.AppendUint64(b, l.Off)
	b = le.AppendUint32(b, uint32(l.PID))
	b = le.AppendUint32(b, l.Region)
	b = le.AppendUint32(b, l.Len)
	return append(b, l.Site, 0, 0, 0)
}

// ParseLookup reads what Append wrote. The error wraps ErrRecord.
func ParseLookup(b []byte) (l Lookup, err error) {
	le := binary.LittleEndian
	if len(b) != lookupLen {
		return l, fmt.Errorf("%w: a lookup of %d bytes", ErrRecord, len(b))
	}
	l = Lookup{Size: le.Uint64(b), Off: le.Uint64(b[8:]), PID: int32(le.Uint32(b[16:])), Region: le.Uint32(b[20:]),
		Len: le.Uint32(b[24:]), Site: b[28]}
	if l.Len == 0 || l.Off > l.Size || uint64(l.Len) > l.Size-l.Off || l.Site >= lookupSites || b[29]|b[30]|b[31] != 0 {
		return l, fmt.Errorf("%w: % x", ErrRecord, b)
	}
	return l, nil
}
