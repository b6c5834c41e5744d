// Package scale opens as many connections between two nodes as are asked for, runs an operation on each, opens and
// closes some more in cycles, and tells what that costs: memory per connection in both daemons and both applications,
// the rate, and whether everything is given back.
package scale

import (
	"fmt"

	"multiedge/bench/kit"
)

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("scale", Serve, Run)

// Limits is what daemons must allow for a run: lines for their [limits].
func (s *Spec) Limits() string {
	return fmt.Sprintf("conns = %[1]d\nexports = %[1]d\nconns_per_user = %[1]d\nrequests = 65536\nbacklog = 4096",
		min(s.Conns+1000, 1<<16))
}
