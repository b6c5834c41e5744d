package park

import (
	"time"

	"multiedge/internal/mono"
)

// Unreceived says when frames with parts of an operation were left unreceived because of misses, in milliseconds modulo
// 2^32: the first, 0 if there is none, and the latest.
type Unreceived struct{ since, last uint32 }

// More notes another, and returns the time since the first. That begins anew if none came for Time: the operation
// cannot have used memory that became resident meanwhile.
func (u *Unreceived) More(now mono.Time) time.Duration {
	ms := max(1, uint32(time.Duration(now)/time.Millisecond))
	if u.since == 0 || ms-u.last >= uint32(Time/time.Millisecond) {
		u.since = ms
	}
	u.last = ms
	return time.Duration(ms-u.since) * time.Millisecond
}
