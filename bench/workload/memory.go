package workload

import (
	"context"
	"errors"
	"fmt"

	"multiedge/bench/bytestream"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/edge/heap"
)

// regions is the registered memory of one end of a series.
type regions struct {
	control        *edge.Region
	source, target *edge.Region // nil when the series does not need it
	size           int          // of source and target
	granted        bool         // they are heap grants
	note           string       // why size is not what was asked for
}

// register registers what an end needs, with data regions of size bytes; where the pin limit does not allow that, with
// smaller ones, and says so in note. Nothing stays registered after an error.
func register(d *edge.Device, want memory, size int) (*regions, error) {
	control, err := d.Register(controlSize)
	if err != nil {
		return nil, fmt.Errorf("registering the control region: %w", err)
	}
	asked := size
	for {
		r := &regions{control: control, size: size, granted: want.heap}
		err := r.data(d, want)
		if err == nil {
			r.touch()
			if size != asked {
				r.note = fmt.Sprintf("regions of %s do not fit the limit on pinned memory, so they are %s (ulimit "+
					"-l, LimitMEMLOCK= or CAP_IPC_LOCK raise it, MemoryMax= that of a control group)",
					report.Bytes(asked), report.Bytes(size))
			}
			return r, nil
		}
		next := size / 4 * 3 &^ 4095
		if !errors.Is(err, edge.ErrMemlock) && !errors.Is(err, edge.ErrLimit) || next < minRegion {
			return nil, errors.Join(fmt.Errorf("registering %s: %w", report.Bytes(size), err), control.Close())
		}
		size = next
	}
}

// data registers the data regions, or none.
func (r *regions) data(d *edge.Device, want memory) error {
	err := kit.Try(func() {
		if want.source {
			r.source = region(d, want.heap, r.size)
		}
		if want.target {
			r.target = region(d, want.heap, r.size)
		}
	})
	if err != nil && r.source != nil {
		err = errors.Join(err, r.source.Close())
	}
	return err
}

func region(d *edge.Device, granted bool, size int) *edge.Region {
	if granted {
		return kit.Get(heap.Grant(context.Background(), d, make([]byte, size)))
	}
	return kit.Get(d.Register(size))
}

// close gives everything back.
func (r *regions) close() error {
	var err error
	for _, reg := range []*edge.Region{r.source, r.target, r.control} {
		if reg != nil {
			err = errors.Join(err, reg.Close())
		}
	}
	return err
}

// touch writes to all of the data regions, as bytestream.Touch does for other transports, before anything is measured.
func (r *regions) touch() {
	if r.source != nil {
		bytestream.Touch(r.source.Bytes())
	}
	if r.target != nil {
		bytestream.Touch(r.target.Bytes())
	}
}
