package workload

import "multiedge/bench/bytestream"

// touch writes to all of the data regions, as bytestream.Touch does for other transports, before anything is measured.
func (r *regions) touch() {
	if r.source != nil {
		bytestream.Touch(r.source.Bytes())
	}
	if r.target != nil {
		bytestream.Touch(r.target.Bytes())
	}
}
