package handles

import (
	"fmt"
	"slices"

	"multiedge/bench/kit"
)

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("handles", Serve, Run)

// Limits is what daemons must allow for a run: lines for their [limits].
func (s *Spec) Limits() string {
	return fmt.Sprintf("exports = %d\nrequests = 65536", slices.Max(s.Exports)+1000)
}
