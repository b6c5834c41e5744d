package edge_test

import (
	"context"
	"fmt"

	"multiedge/edge"
)

// A program composes a table row by row, in the order in which it learns them, and corrects one that it has written
// already. Rows travel as they are written; the peer's program sees the table with the commit, whole.
func ExampleConn_Compose() {
	ctx := context.Background()
	fab := edge.NewFabric() // programs use edge.Open
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")
	remote, g := memoryOf(ctx, a, b)

	const row, rows = 64, 16
	mem, err := a.Register(row * rows)
	check(err)
	m, err := remote.Conn().Compose(&edge.Work{Kind: edge.Write, Local: mem, Len: row * rows, Remote: remote})
	check(err)
	write := func(i int, text string) {
		copy(mem.Bytes()[i*row:], text)
		check(m.Wrote(i*row, row))
	}
	for i := range rows {
		write(7*i%rows, fmt.Sprintf("row %2d", 7*i%rows))
	}
	write(3, "row  3, corrected")
	op, err := m.Commit(row*rows, 0, 0)
	check(err)
	check(op.Wait(ctx))
	fmt.Printf("%s\n%s\n", g.Bytes()[3*row:3*row+17], g.Bytes()[15*row:15*row+6])
	// Output:
	// row  3, corrected
	// row 15
}
