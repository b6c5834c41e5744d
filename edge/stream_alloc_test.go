//go:build !race

package edge_test

import (
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/stream"
)

func TestStreamZeroAllocations(t *testing.T) {
	for _, m := range edge.Modes {
		t.Run(m.Name, func(t *testing.T) {
			out, in, _, _ := fakeStreams(t, m.Cfg, m.Cfg, stream.Config{})
			buf, deadline := make([]byte, 10_000), time.Now().Add(time.Hour)
			for name, f := range map[string]func(){
				"Write, Read": func() {
					_, err := out.Write(buf)
					must(t, err)
					for left := len(buf); left > 0; {
						n, err := in.Read(buf[:left])
						must(t, err)
						left -= n
					}
				},
				"SetDeadline, Read, Write": func() {
					must(t, out.SetDeadline(deadline))
					must(t, in.SetDeadline(deadline))
					_, err := in.Write(buf[:1])
					must(t, err)
					_, err = out.Read(buf[:1])
					must(t, err)
				},
			} {
				f()
				if n := testing.AllocsPerRun(300, f); n != 0 {
					t.Errorf("%s: %v allocations per run", name, n)
				}
			}
			must(t, out.Close())
			must(t, in.Close())
		})
	}
}
