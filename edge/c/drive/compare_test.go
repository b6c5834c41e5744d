//go:build ctest

package drive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/edge"
)

// goClientEnv makes this program the Go half of the comparison: the daemon's socket.
const goClientEnv = "EDGE_DRIVE_CLIENT"

const (
	bulkSize, bulkDepth = 1 << 20, 16
	rateDepth, batch    = 512, 16
	pairs               = 5
	each                = 400 * time.Millisecond
)

// BenchmarkClients compares the C client with the Go client, each a process of its own at the same two daemons, in
// interleaved pairs: make bench-c.
func BenchmarkClients(b *testing.B) {
	var c, g [3][]float64
	run := func(cmd *exec.Cmd, socket string, into *[3][]float64) {
		cmd.Env = append(os.Environ(), "EDGE_SOCKET="+socket, goClientEnv+"="+socket)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		var v [3]float64
		if _, err := fmt.Fscan(bytes.NewReader(out), &v[0], &v[1], &v[2]); err != nil {
			b.Fatalf("%q: %v", out, err)
		}
		for i := range v {
			into[i] = append(into[i], v[i])
		}
	}
	from, to := hosts(b)
	d := to.open()
	ctx := context.Background()
	l, err := d.Listen(ctx, "bench")
	must(b, err)
	r, err := d.Register(bulkSize)
	must(b, err)
	go exportToAll(ctx, l, r, "mem")
	for b.Loop() {
		for range pairs {
			run(exec.Command(program(b, "bench"), "b", "bench", fmt.Sprint(each.Milliseconds())), from.cfg.Socket, &c)
			run(exec.Command("/proc/self/exe"), from.cfg.Socket, &g)
		}
	}
	for i, unit := range []string{"8-byte-writes/s", "us-for-one", "MB/s-by-1-MiB"} {
		slices.Sort(c[i])
		slices.Sort(g[i])
		vc, vg := c[i][len(c[i])/2], g[i][len(g[i])/2]
		b.ReportMetric(vc, "C-"+unit)
		b.ReportMetric(vg, "Go-"+unit)
		b.ReportMetric(vc/vg, "C/Go-"+strings.SplitN(unit, "-", 2)[0])
	}
}

// beClient measures what bench.c does, in Go.
func beClient(socket string) error {
	ctx := context.Background()
	d, err := edge.Open(ctx, edge.Config{Socket: socket})
	if err != nil {
		return err
	}
	c, err := d.Dial(ctx, "b", "bench")
	if err != nil {
		return err
	}
	r, err := d.Register(bulkSize)
	if err != nil {
		return err
	}
	m, err := c.Import(ctx, "mem")
	if err != nil {
		return err
	}
	ops, err := rate(ctx, c, edge.Work{Kind: edge.Write, Local: r, Len: 8, Remote: m})
	if err != nil {
		return err
	}
	us, err := latency(ctx, c, edge.Work{Kind: edge.Write, Local: r, Len: 8, Remote: m})
	if err != nil {
		return err
	}
	mb, err := bulk(ctx, c, edge.Work{Kind: edge.Write, Local: r, Len: bulkSize, Remote: m})
	if err != nil {
		return err
	}
	fmt.Println(ops, us, mb)
	return c.Close()
}

func rate(ctx context.Context, c *edge.Conn, w edge.Work) (float64, error) {
	ws, ops := slices.Repeat([]edge.Work{w}, batch), make([]edge.Op, 2*rateDepth)
	all := make([]*edge.Work, batch)
	for i := range ws {
		all[i] = &ws[i]
	}
	posted, begin := 0, time.Now()
	for time.Since(begin) < each {
		if posted >= rateDepth {
			if err := ops[(posted-rateDepth)%len(ops)+batch-1].Wait(ctx); err != nil {
				return 0, err
			}
		}
		for i := range ws {
			ws[i].Op = &ops[posted%len(ops)+i]
		}
		if _, err := c.Post(ctx, all...); err != nil {
			return 0, err
		}
		posted += batch
	}
	err := ops[(posted-1)%len(ops)].Wait(ctx)
	return float64(posted) / time.Since(begin).Seconds(), err
}

func latency(ctx context.Context, c *edge.Conn, w edge.Work) (float64, error) {
	var took []time.Duration
	for begin := time.Now(); time.Since(begin) < each; {
		at := time.Now()
		op, err := c.Post(ctx, &w)
		if err == nil {
			err = op.Wait(ctx)
		}
		if err != nil {
			return 0, err
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took[len(took)/2].Seconds() * 1e6, nil
}

func bulk(ctx context.Context, c *edge.Conn, w edge.Work) (float64, error) {
	var ops [bulkDepth]edge.Op
	n, begin := 0, time.Now()
	for ; time.Since(begin) < each; n++ {
		err := ops[n%bulkDepth].Wait(ctx)
		if err == nil {
			ops[n%bulkDepth], err = c.Post(ctx, &w)
		}
		if err != nil {
			return 0, err
		}
	}
	if err := edge.WaitAll(ctx, ops[:]); err != nil {
		return 0, err
	}
	return float64(n) * bulkSize / 1e6 / time.Since(begin).Seconds(), nil
}
