package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"multiedge/bench"
	"multiedge/bench/report"
)

// profileCmd shows what the processor time of a frame goes to.
type profileCmd struct {
	Test string `arg:"" optional:"" default:"one-way" enum:"one-way,two-way,ping-pong,read,rate" help:"one-way, two-way, ping-pong, read or rate."`
	sizeFlags
	labRunFlags
}

func (c *profileCmd) Run(ctx context.Context) error {
	p := plan(c.Test, &c.sizeFlags, &c.workFlags)
	if len(p.Sizes) == 0 && (c.Test == report.OneWay || c.Test == report.TwoWay || c.Test == report.Read) {
		p.Sizes = []int{1 << 20}
	}
	specs, region, err := bench.Concat(p)
	if err != nil {
		return err
	}
	return c.inLab("MultiEdge profile", len(specs), "table", func(o *output) error {
		s := bench.Series{Specs: specs, Region: region, Profile: true}
		if err := o.series(ctx, c.cluster(&c.transportFlags, c.Seed), s); err != nil {
			return err
		}
		for i := range o.file.Results {
			printProfile(os.Stdout, &o.file.Results[i])
		}
		return nil
	})
}

// printProfile prints the breakdown of both ends of a row: share, and nanoseconds for each frame that crossed in the
// busier direction.
func printProfile(w io.Writer, r *report.Row) {
	if r.Client == nil {
		return
	}
	frames := max(r.Client.FramesSent, r.Client.FramesReceived, 1)
	each, payload := "", float64(r.Bytes)/float64(frames)
	if r.Test == report.TwoWay || r.Test == report.PingPong { // r.Bytes are those of both directions
		each, payload = " each way", payload/2
	}
	fmt.Fprintf(w, "\n%s of %s: %d frames%s of %.0f bytes of payload on average\n", r.Test,
		report.Bytes(r.MessageBytes), frames, each, payload)
	fmt.Fprintf(w, "  %-34s %22s %22s\n", "", "client", "server")
	client, server := r.CPU.Client.Parts(), r.CPU.Server.Parts()
	for _, label := range report.Labels {
		if client[label] > 0 || server[label] > 0 {
			fmt.Fprintf(w, "  %-34s %s %s\n", label, perFrame(client[label], r.CPU.Client.Total, frames),
				perFrame(server[label], r.CPU.Server.Total, frames))
		}
	}
	fmt.Fprintf(w, "  %-34s %s %s\n", "processor time", perFrame(r.CPU.Client.Total, r.CPU.Client.Total, frames),
		perFrame(r.CPU.Server.Total, r.CPU.Server.Total, frames))
	fmt.Fprintf(w, "  %-34s %15.0f ns\n", "time between frames", r.Seconds*1e9/float64(frames))
}

func perFrame(seconds, total float64, frames uint64) string {
	return fmt.Sprintf("%9.0f ns  %5.1f %%   ", seconds*1e9/float64(frames), 100*seconds/cmp.Or(total, 1))
}
