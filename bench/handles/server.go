package handles

import (
	"context"
	"fmt"

	"multiedge/bench/kit"
	"multiedge/bench/scale"
	"multiedge/edge"
	"multiedge/edge/catalog"
)

const (
	service = "edgebench-handles"
	objects = 1024 // of the exporter's memory: exports share them
	perConn = 4000 // exports of a connection, of which a peer remembers 4096
	workers = 32   // that export at once on a connection
)

func offset(i int) int { return i % objects * object }

func name(i int) string { return fmt.Sprintf("object %d", i) }

// Serve exports to whoever comes, until ctx ends. started is called when clients may come.
func Serve(ctx context.Context, d *edge.Device, started func()) {
	mem := kit.Get(d.Register(objects * object))
	l := kit.Get(d.Listen(ctx, service))
	offer := func(_, n string) (edge.Piece, edge.Perm, error) {
		var i, of int
		if _, err := fmt.Sscanf(n, "object %d of %d", &i, &of); err != nil || i >= of {
			return edge.Piece{}, 0, fmt.Errorf("there is no %q", n)
		}
		return edge.Piece{Region: mem, Off: offset(i), Len: object}, edge.RemoteWrite, nil
	}
	kit.Get(catalog.Serve(ctx, d, service, offer))
	kit.Together(ctx, func(ctx context.Context) { scale.Serve(ctx, d, started) }, func(ctx context.Context) {
		for {
			go grant(kit.Get(l.Accept(ctx)), mem)
		}
	})
}

// grant exports as many objects as a connection's data says, and then one more, named end.
func grant(c *edge.Conn, mem *edge.Region) {
	var from, n int
	if _, err := fmt.Sscanf(string(c.Data()), "%d %d", &from, &n); err != nil {
		c.Abort()
		return
	}
	err := kit.Try(func() {
		kit.Each(context.Background(), n, workers, func(_ context.Context, i int) {
			kit.Get(mem.Export(c, name(from+i), edge.RemoteWrite, offset(from+i), object))
		})
	})
	if err != nil {
		c.Abort() // the other side says that it did not find it
	}
	mem.Export(c, "end", edge.RemoteWrite, 0, object)
	for err = nil; err == nil; {
		_, err = c.WaitNotify(context.Background())
	}
	c.Close()
}
