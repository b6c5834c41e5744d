// Package mono is the transport's only notion of time: nanoseconds on a monotonic clock that never steps.
//
// Protocol code receives a Time as an argument and never reads the clock; shells read it once per iteration.
package mono

import "time"

// Time is nanoseconds since an arbitrary origin fixed at process start. The zero Time is before every reading of Now.
type Time int64

// Never is later than every reading of Now: an unarmed timer.
const Never Time = 1<<63 - 1

// first is about the first reading of Now in a process. All readings are thus 2^48 or more and cannot be addresses of
// memory. A smaller number can, for all that Go's collector knows when it meets one in the registers or on the stack of
// a goroutine that it has preempted. It looks each up in a table that has a page for every 34 seconds of such times:
// from an hour on, a process touched 0.4 MB of that table an hour. From here, float64 holds nanoseconds exactly for 100
// days.
const first = 1 << 48

var origin = time.Now().Add(-first)

// Now reads the monotonic clock. Settings of the wall clock do not move it.
func Now() Time { return Time(time.Since(origin)) }

// Add returns t+d, saturating at Never so that an unarmed timer stays unarmed.
func (t Time) Add(d time.Duration) Time {
	if t == Never {
		return Never
	}
	return t + Time(d)
}

// Sub returns the time elapsed from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Min returns the earlier of two times.
func Min(a, b Time) Time { return min(a, b) }
