package splash

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/edge/dsm"
	"multiedge/internal/lab"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

// A program with no more than EDGE_DSM and EDGE_SOCKET in its environment finds the others.
func init() {
	kit.AddRole("splash environment", func(ctx context.Context, p *kit.Port) error {
		var env map[string]string
		if err := p.Job(&env); err != nil {
			return err
		}
		for name, value := range env {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		k, _ := Named("radix")
		return dsm.Run(ctx, dsm.Config{}, func(m *dsm.Memory) error {
			_, s := k.Run(m, small["radix"])
			return p.Emit(s.Barriers)
		})
	})
}

func TestEnvironment(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1}})
	ranks := kit.NewCrew()
	defer ranks.Stop()
	kittest.Must(t, kit.Try(func() {
		for rank := range 2 {
			ranks.Add(fmt.Sprint("rank ", rank), c.Start(rank, "splash environment", map[string]string{
				"EDGE_SOCKET": c.Socket(rank),
				dsm.Variable:  fmt.Sprintf("job7,%d,2,%s", rank, c.Lab().Host(0).Name())}))
		}
		for said := 0; said < 2; {
			e := ranks.Hear(ctx)
			if e.Over && ranks.Process(e.Member).Ends() == nil {
				continue
			}
			kit.Check(e.Err())
			var barriers int
			kit.Check(e.Into(&barriers))
			if said++; barriers != 4 {
				t.Errorf("rank %d: %d barriers", e.Member, barriers)
			}
		}
	}))
}

// All kernels between daemons on three hosts, over two links that are cut in turn; then a rank is killed.
func TestInLab(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	spec := Spec{Costs: 10, Cut: true, Kill: true}
	for _, k := range Kernels {
		spec.Tasks = append(spec.Tasks, Task{k.Name, small[k.Name]})
	}
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 3, Links: 2}})
	shown := 0
	res, err := Run(ctx, c, spec, func(string, float64) { shown++ })
	kittest.Must(t, err)
	for _, r := range res.Rows {
		if !r.Same || len(r.Stats) != 3 || r.Stats[2].Operations == 0 {
			t.Errorf("%+v", r)
		}
	}
	if shown != 2*len(Kernels) || res.Cuts == 0 || len(res.Steps) != 14 {
		t.Errorf("shown %d times, %d cuts, %d steps", shown, res.Cuts, len(res.Steps))
	}
	if len(res.Kills) != 2 {
		t.Fatalf("%+v", res.Kills)
	}
	for _, k := range res.Kills {
		if !strings.Contains(k.Error, "dsm: rank 2 on host2 was lost") {
			t.Errorf("%+v", k)
		}
	}
}
