package flowctl

import "time"

const (
	// MinPTO floors the probe timeout. Threads of user space wake 50 to 100 us late when all is well, and on a host
	// with more threads than cores the peer is off its core for one to a few milliseconds as a matter of course. A
	// probe then is not harmful but is noise: it counts against the path, and the third in a row halves its window. Two
	// milliseconds ride out most of that, and bound what a lost last frame costs.
	MinPTO = 2 * time.Millisecond

	// InitialPTO applies until the first round trip was measured.
	InitialPTO = 10 * time.Millisecond

	// LeastRTT is less than any round trip takes: two threads that wake up, and four system calls. Both ends stamp a
	// frame with the time at which their round of work began. A frame that arrives while a round goes on is thus taken
	// for older than it is: the peer says that it held the acknowledgement back for longer than it did, and ours seems
	// to arrive before it came. On a busy host both errors are as long as a round trip.
	LeastRTT = time.Microsecond

	// A round trip longer than awayTime, and more than awayGrowth times the smoothed one, tells how long an end was
	// away (stopped, suspended), not how long the path is. Believed whole, it would make the next loss wait for a probe
	// as long as that. Counted as the larger of the two, it still lets a path that really became so slow be learned
	// within some samples.
	awayTime   = 100 * time.Millisecond
	awayGrowth = 8
)

// RTT estimates the round trip of one path, as RFC 6298 section 2 and RFC 9002 section 5 do, except that the time the
// peer held the acknowledgement back is always taken out: the peer measured it, is authenticated, and holds back longer
// than the wire takes. What remains is the wire, its queues, and the time a frame waited for the peer's thread.
//
// The zero value has no sample.
type RTT struct {
	srtt, rttvar, min, latest time.Duration
}

// Update adds a sample: from sending a frame to receiving its acknowledgement, ackDelay of which the peer spent
// waiting. It reports false for a sample shorter than LeastRTT, which is ignored; an ackDelay that leaves less than
// that of the sample is not believed.
func (r *RTT) Update(sample, ackDelay time.Duration) bool {
	if sample < LeastRTT {
		return false
	}
	if ackDelay > 0 && ackDelay <= sample-LeastRTT {
		sample -= ackDelay
	}
	least := sample // no round trip was as short as what it is counted as
	sample = min(sample, max(awayTime, awayGrowth*r.srtt))
	if !r.Valid() {
		*r = RTT{srtt: sample, rttvar: sample / 2, min: least, latest: sample}
		return true
	}
	r.latest = sample
	r.min = min(r.min, least)
	r.rttvar += ((r.srtt - sample).Abs() - r.rttvar) / 4
	r.srtt += (sample - r.srtt) / 8
	return true
}

// Valid reports whether there was a sample.
func (r *RTT) Valid() bool { return r.latest > 0 }

// SRTT returns the smoothed round trip; 0 before the first sample, like the following.
func (r *RTT) SRTT() time.Duration { return r.srtt }

// Var returns the smoothed mean deviation.
func (r *RTT) Var() time.Duration { return r.rttvar }

// Min returns the shortest round trip seen, since it rose.
func (r *RTT) Min() time.Duration { return r.min }

// Rise says that the path has become longer: no round trip is shorter than d.
func (r *RTT) Rise(d time.Duration) { r.min = d }

// Latest returns the newest sample, less the peer's delay.
func (r *RTT) Latest() time.Duration { return r.latest }

// PTO returns how long to wait for an acknowledgement before probing, ackDelay being the peer's AckParams.Delay: two
// round trips and four deviations (RFC 8985 section 7.2, RFC 9002 section 6.2.1).
func (r *RTT) PTO(ackDelay time.Duration) time.Duration {
	if !r.Valid() {
		return InitialPTO + ackDelay
	}
	return max(2*r.srtt+4*r.rttvar+ackDelay, MinPTO)
}
