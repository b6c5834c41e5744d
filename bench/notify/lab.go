package notify

import (
	"multiedge/bench/kit"
)

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudyBySocket("notify", Serve, Run)
