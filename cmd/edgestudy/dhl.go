package main

import (
	"context"

	"multiedge/bench/xlate"
)

// dhlCmd repeats what traces can tell of dynamic handle lookup.
type dhlCmd struct {
	studyFlags
}

func (c *dhlCmd) Run(ctx context.Context) error { return c.run(ctx, "dhl", xlate.StudyDHL) }
