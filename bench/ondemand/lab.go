package ondemand

import (
	"multiedge/bench/kit"
)

// InLab is the study between two hosts of a lab.
var InLab = kit.NewStudy("ondemand", Serve, Run)
