package splash

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/dsm"
)

// Here takes this process's part, as one rank, in runs of the kernels of a Spec between hosts of the user's own: place
// is the value of EDGE_DSM, the same at all ranks but for the rank. Rows have the Stats of this rank alone, and rank 0
// alone compares the result with the sequential run.
func Here(ctx context.Context, d *edge.Device, s Spec, place string) (*Result, error) {
	fields := strings.Split(place, ",")
	if len(fields) != 4 {
		return nil, fmt.Errorf("%s=%q: want NAME,RANK,RANKS,ROOT", dsm.Variable, place)
	}
	rank, err := strconv.Atoi(fields[1])
	ranks, err2 := strconv.Atoi(fields[2])
	if err != nil || err2 != nil || ranks < 2 {
		return nil, fmt.Errorf("%s=%q: RANK is a number from 0, RANKS one from 2", dsm.Variable, place)
	}
	j := job{Spec: s, Rank: rank, Ranks: ranks, Hosts: []string{fields[3]}}
	res := &Result{Spec: s, Ranks: ranks, Self: rank + 1}
	port := kit.NewPort("", strings.NewReader(""), io.Discard) // nobody is told what it does
	for i, t := range s.Tasks {
		row, err := j.kernel(ctx, d, port, fmt.Sprintf("%s/%d", fields[0], i), t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Kernel, err)
		}
		res.Rows = append(res.Rows, *row)
	}
	return res, nil
}
