package compose_test

import (
	"context"
	"fmt"
	"log"

	"multiedge/edge"
	"multiedge/edge/compose"
	"multiedge/edge/fabric"
)

// A program composes a table row by row, in the order in which it learns them, and corrects one that it has written
// already. Rows travel as they are written; the peer's program sees the table with the commit, whole.
func ExampleBegin() {
	ctx := context.Background()
	fab := fabric.New() // programs use edge.Open
	defer fab.Close()
	a, b := open(fab, "a"), open(fab, "b")
	remote, g := memoryOf(ctx, a, b)

	const row, rows = 64, 16
	mem, err := a.Register(row * rows)
	check(err)
	m, err := compose.Begin(remote.Conn(), &edge.Work{Kind: edge.Write, Local: mem, Len: row * rows, Remote: remote})
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

// memoryOf connects a to b, which exports 4096 bytes, and returns what each end has of them.
func memoryOf(ctx context.Context, a, b *edge.Device) (*edge.RemoteRegion, *edge.Grant) {
	l, err := b.Listen(ctx, "memory")
	check(err)
	granted := make(chan *edge.Grant)
	go func() {
		c, err := l.Accept(ctx)
		check(err)
		mem, err := b.Register(4096)
		check(err)
		g, err := mem.Export(c, "memory", edge.RemoteWrite, 0, 4096)
		check(err)
		granted <- g
	}()
	c, err := a.Dial(ctx, "b", "memory")
	check(err)
	remote, err := c.Import(ctx, "memory")
	check(err)
	return remote, <-granted
}

func open(fab *fabric.Fabric, name string) *edge.Device {
	d, err := fab.Open(name)
	check(err)
	return d
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
