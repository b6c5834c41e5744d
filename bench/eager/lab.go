package eager

import (
	"multiedge/bench/kit"
)

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("eager", Serve, Run)
