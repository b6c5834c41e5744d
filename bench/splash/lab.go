package splash

import (
	"context"
	"errors"
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/dsm"
)

// Task is a kernel at a size.
type Task struct {
	Kernel string `json:"kernel"`
	Size   int    `json:"size"`
}

// Spec says what is run between the hosts of a cluster, one rank on each.
type Spec struct {
	Tasks []Task `json:"tasks"`
	Costs int    `json:"costs"` // rounds of measuring what single steps cost, beside the operations they are made of
	Cut   bool   `json:"cut"`   // links are cut in turn while the kernels run
	Kill  bool   `json:"kill"`  // a rank is killed at the end
	// program with the kernels of Mixed in C, which every other rank from rank 1 on is; empty: all are in Go
	Program string `json:"program,omitempty"`
	// program that measures what steps cost in C, for Costs; empty: that is left out
	CostsInC string `json:"costs_in_c,omitempty"`
}

// Result is what came of a Spec.
type Result struct {
	Spec
	Ranks int     `json:"ranks"`
	Self  int     `json:"self,omitempty"` // 1 + the only rank that rows are of (Here); 0: they are of all
	Rows  []Row   `json:"rows"`
	Steps []Step  `json:"steps,omitempty"`
	Cuts  int     `json:"cuts,omitempty"`
	Kills []Ended `json:"kills,omitempty"`
}

// Row is a run of a kernel.
type Row struct {
	Task
	Alone float64     `json:"alone"`          // seconds of the sequential run
	Same  bool        `json:"same"`           // the result equals the sequential run's, bit for bit
	Stats []dsm.Stats `json:"stats"`          // by rank
	InC   int         `json:"in_c,omitempty"` // ranks in C
}

// Ended is how a rank ended after another was killed.
type Ended struct {
	Rank  int     `json:"rank"`
	After float64 `json:"after"` // seconds
	Error string  `json:"error"`
}

const role = "splash rank"

const killMemory = 1 << 16 // bytes of the run in which a rank is killed

// job is a rank in a lab host.
type job struct {
	Spec
	Socket string   `json:"socket"`
	Rank   int      `json:"rank"`
	Ranks  int      `json:"ranks"`
	Hosts  []string `json:"hosts"` // nodes of the ranks
	// IP addresses of the ranks, for what is compared with TCP
	Addresses []string `json:"addresses"`
}

// event is what a rank reports: what it does, or a row with its own Stats, or steps.
type event struct {
	What  string `json:"what,omitempty"`
	Row   *Row   `json:"row,omitempty"`
	Steps []Step `json:"steps,omitempty"`
}

func init() {
	kit.AddRole(role, func(ctx context.Context, p *kit.Port) error {
		var j job
		if err := p.Job(&j); err != nil {
			return err
		}
		d, err := edge.Open(ctx, edge.Config{Socket: j.Socket, Spin: dsm.Spin})
		if err != nil {
			return err
		}
		defer d.Close()
		return j.run(ctx, d, p)
	})
}

// config is the rank's part in a run of that name.
func (j *job) config(d *edge.Device, name string, size int) dsm.Config {
	return dsm.Config{Name: "splash/" + name, Rank: j.Rank, Ranks: j.Ranks, Root: j.Hosts[0], Device: d, Size: size,
		Join: 10 * time.Minute} // rank 0 does the sequential run first
}

// run is what a rank does.
func (j *job) run(ctx context.Context, d *edge.Device, p *kit.Port) error {
	for i, t := range j.Tasks {
		row, err := j.kernel(ctx, d, p, fmt.Sprint(i), t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Kernel, err)
		}
		if err := p.Emit(event{Row: row}); err != nil {
			return err
		}
	}
	if j.Costs > 0 {
		steps, err := j.allCosts(ctx, d)
		if err != nil {
			return fmt.Errorf("costs: %w", err)
		}
		if j.Rank == 1 { // only it has something to compare with
			if err := p.Emit(event{Steps: steps}); err != nil {
				return err
			}
		}
	}
	if !j.Kill {
		return nil
	}
	if j.inC() {
		return j.barriersInC(ctx, p)
	}
	return dsm.Run(ctx, j.config(d, "kill", killMemory), func(m *dsm.Memory) error {
		m.Barrier()
		p.Started()
		for {
			m.Barrier()
		}
	})
}

// allCosts measures single steps and whole runs, each beside what it is made of or competes with.
func (j *job) allCosts(ctx context.Context, d *edge.Device) (steps []Step, err error) {
	err = kit.Try(func() {
		tcp := j.newMesh()
		defer tcp.close()
		steps = kit.Get(j.costs(ctx, d, tcp))
		steps = append(steps, j.besideHand(ctx, d, tcp)...)
		steps = append(steps, j.costsInC(ctx)...)
	})
	return steps, err
}

// kernel runs a task, at rank 0 alone first.
func (j *job) kernel(ctx context.Context, d *edge.Device, p *kit.Port, name string, t Task) (*Row, error) {
	k, ok := Named(t.Kernel)
	if !ok {
		return nil, fmt.Errorf("there is no kernel %q", t.Kernel)
	}
	row, want, got := &Row{Task: t}, uint64(0), uint64(0)
	if j.Rank == 0 {
		_ = p.Emit(event{What: t.Kernel + ", one rank"}) // if the parent is gone, its end ends this process
		err := dsm.Run(ctx, dsm.Config{Ranks: 1, Size: k.Memory(t.Size, 1)}, func(m *dsm.Memory) error {
			digest, s := k.Run(m, t.Size)
			want, row.Alone = digest, s.Total.Seconds()
			return nil
		})
		if err != nil {
			return nil, err
		}
		_ = p.Emit(event{What: fmt.Sprintf("%s, %d ranks", t.Kernel, j.Ranks)}) // likewise
	}
	if j.inC() {
		s, err := j.kernelInC(ctx, name, &k, t.Size)
		row.Stats, row.InC = []dsm.Stats{s}, 1
		return row, err
	}
	err := dsm.Run(ctx, j.config(d, name, k.Memory(t.Size, j.Ranks)), func(m *dsm.Memory) error {
		digest, s := k.Run(m, t.Size)
		got, row.Stats = digest, []dsm.Stats{s}
		return nil
	})
	row.Same = got == want
	return row, err
}

// Run runs a Spec with a rank in each host of a cluster. show is called now and then.
func Run(ctx context.Context, c *kit.Cluster, s Spec, show kit.Show) (*Result, error) {
	n := c.Lab().Hosts()
	ranks := kit.NewCrew()
	defer ranks.Stop()
	var hosts, addresses []string
	for i := range n {
		hosts, addresses = append(hosts, c.Lab().Host(i).Name()), append(addresses, c.Lab().Host(i).IP(0).String())
	}
	for rank := range n {
		name := fmt.Sprint("rank ", rank)
		err := kit.Try(func() {
			ranks.Add(name, c.Start(rank, role, job{s, c.Socket(rank), rank, n, hosts, addresses}))
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	res := &Result{Spec: s, Ranks: n, Rows: make([]Row, len(s.Tasks))}
	for i := range res.Rows {
		res.Rows[i].Stats = make([]dsm.Stats, n)
	}
	var cuts *cutter
	if s.Cut {
		cuts = cut(ctx, c.Lab())
	}
	err := kit.Try(func() {
		res.follow(ctx, ranks, show, func() {
			if cuts != nil {
				cuts.cancel() // steps are measured on links that are whole
			}
		})
	})
	if cuts != nil {
		var wrong error
		res.Cuts, wrong = cuts.stop()
		err = errors.Join(err, wrong)
	}
	if err == nil && s.Kill {
		res.Kills, err = kill(ctx, ranks, n)
	}
	return res, err
}

// follow takes the rows of all ranks, until they have ended or wait to be killed. It calls computed when rank 0 has all
// of its rows.
func (res *Result) follow(ctx context.Context, ranks *kit.Crew, show kit.Show, computed func()) {
	done, next := 0, make([]int, res.Ranks)
	if len(res.Rows) == 0 {
		computed()
	}
	for busy := res.Ranks; busy > 0; {
		e := ranks.Hear(ctx)
		if e.Over && !res.Kill && ranks.Process(e.Member).Ends() == nil || e.Started {
			busy--
			continue
		}
		kit.Check(e.Err())
		var body event
		kit.Checkf(e.Into(&body), "rank %d: unknown report %q", e.Member, e.Body)
		switch {
		case body.Row != nil:
			row := &res.Rows[next[e.Member]]
			next[e.Member]++
			row.Stats[e.Member] = body.Row.Stats[0]
			row.InC += body.Row.InC
			if e.Member == 0 {
				row.Task, row.Alone, row.Same = body.Row.Task, body.Row.Alone, body.Row.Same
				if done++; done == len(res.Rows) {
					computed()
				}
			}
		case len(body.Steps) > 0:
			res.Steps = body.Steps
		case body.What != "":
			show(body.What, float64(done)/float64(len(res.Rows)))
		}
	}
}

// kill kills the last of n ranks and says how and when the others ended.
func kill(ctx context.Context, ranks *kit.Crew, n int) (list []Ended, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	start := time.Now()
	ranks.Process(n - 1).Kill()
	err = kit.Try(func() {
		for len(list) < n-1 {
			if e := ranks.Hear(ctx); e.Error != "" && e.Member != n-1 {
				list = append(list, Ended{e.Member, time.Since(start).Seconds(), e.Error})
			}
		}
	})
	if err != nil {
		err = fmt.Errorf("rank %d was killed, and only %d of the others ended: %w", n-1, len(list), err)
	}
	return list, err
}
