package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	memory "multiedge/bench/xlate/trace"
	"multiedge/internal/trace"
)

// lookups collects what the daemon says of memory that operations use, as a trace that edgestudy utlb and dhl replay.
type lookups struct {
	memory.Trace
	most      uint64 // records
	processes map[int32]uint8
	slots     map[slot]uint64 // where addresses of it begin
	ends      []uint64        // by process: where the next slot goes
	others    uint64          // lookups of further processes, which have no place in a trace
	lost      uint64
	first     time.Duration
}

// slot is a part of a region. Parts that are used are put one behind the other, in the order of first use, so that a
// trace of a sparse space of many GiB does not take tables of that size to replay.
type slot struct {
	pid    int32
	region uint32
	number uint64
}

const (
	slotBytes   = 16 << 20
	firstSlot   = 1 << 30 // so that no address is 0
	mostLookups = 1 << 20
)

// siteOps are the operations of a trace by regmem.Site.
var siteOps = [...]memory.Op{memory.Send, memory.Deposit, memory.Serve, memory.Fetch}

// runLookups is edgectl trace --lookups.
func (c *traceCmd) runLookups(ctx context.Context, s *tracing, errs io.Writer) error {
	l := &lookups{most: c.Count, processes: map[int32]uint8{}, slots: map[slot]uint64{}}
	if l.most == 0 {
		l.most = mostLookups
	}
	in := trace.NewReader(s.pipe)
	var r trace.Record
	for uint64(len(l.Records)) < l.most {
		if err := in.Next(&r); err == io.EOF && ctx.Err() == nil {
			return errors.New("the daemon ended the trace")
		} else if err != nil && ctx.Err() == nil {
			return err
		} else if err != nil {
			break // it was told to end
		}
		l.lost += uint64(r.Lost)
		if err := l.add(&r); err != nil {
			return err
		}
	}
	if len(l.Records) == 0 {
		return errors.New("no operation used any memory meanwhile; nothing was written")
	}
	if err := l.write(c.Write); err != nil {
		return err
	}
	fmt.Fprintf(errs, "%d lookups of %d processes; %d found no room, %d were of further processes\n", len(l.Records),
		l.Processes, l.lost, l.others)
	return nil
}

// add takes one more record.
func (l *lookups) add(r *trace.Record) error {
	u, err := trace.ParseLookup(r.Data)
	if err != nil {
		return err
	}
	process, known := l.processes[u.PID]
	if !known {
		if len(l.processes) == memory.MaxProcesses {
			l.others++
			return nil
		}
		process = uint8(len(l.processes))
		l.processes[u.PID], l.ends = process, append(l.ends, firstSlot)
	}
	if len(l.Records) == 0 {
		l.first = time.Duration(r.Time)
	}
	at := uint64(max(time.Duration(r.Time)-l.first, 0))
	for u.Len > 0 {
		n := min(uint64(u.Len), slotBytes-u.Off%slotBytes)
		l.note(memory.Record{Time: at, Addr: l.address(&u, process), Length: uint32(n), Process: process,
			Op: siteOps[u.Site]})
		u.Off, u.Len = u.Off+n, u.Len-uint32(n)
	}
	return nil
}

// address is where the trace has the memory of a lookup.
func (l *lookups) address(u *trace.Lookup, process uint8) uint64 {
	k := slot{u.PID, u.Region, u.Off / slotBytes}
	at, known := l.slots[k]
	if !known {
		at = l.ends[process]
		l.slots[k], l.ends[process] = at, at+slotBytes
	}
	return at + u.Off%slotBytes
}

// note adds a record, or makes the one before longer if it goes on: an operation's parts come one by one.
func (l *lookups) note(r memory.Record) {
	if n := len(l.Records); n > 0 {
		last := &l.Records[n-1]
		r.Time = max(r.Time, last.Time) // shards are not in step
		if last.Process == r.Process && last.Op == r.Op && last.Addr+uint64(last.Length) == r.Addr {
			last.Length += r.Length
			return
		}
	}
	l.Records = append(l.Records, r)
}

// write writes the trace, compressed unless the file's name ends in .txt.
func (l *lookups) write(name string) error {
	l.Nodes, l.Processes = 1, len(l.processes)
	f, err := private(name)
	if err != nil {
		return err
	}
	if strings.HasSuffix(name, ".txt") {
		err = l.WriteText(f)
	} else {
		err = l.Write(f)
	}
	return errors.Join(err, f.Close())
}
