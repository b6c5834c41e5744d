//go:build !race

package edge

import (
	"runtime"
	"testing"
	"time"
)

// Not under the race detector, where sync.Pool forgets on purpose.
func TestZeroAllocations(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			ctx := testContext(t)
			p := newDuo(t, m.cfg, 1<<16)
			buf := make([]byte, 1000)
			ws := make([]Work, 4)
			for i := range ws {
				ws[i] = Work{Kind: Read, Local: p.local, Len: 64, Remote: p.remote}
			}
			ops := make([]Op, len(ws))
			for name, f := range map[string]func(){
				"Post, Wait, Err, PollNotify": func() {
					op, err := p.out.Post(&Work{Kind: Write, Local: p.local, Len: 64, Remote: p.remote, Flags: Notify})
					must(t, err)
					must(t, op.Wait(ctx))
					must(t, op.Err())
					for {
						if _, ok := p.in.PollNotify(); ok {
							break
						}
					}
				},
				"Post, Done, WaitNotify": func() {
					op, err := p.out.PostWait(ctx, &Work{Kind: Write, Inline: buf[:8], Remote: p.remote, Flags: Notify})
					must(t, err)
					_, err = p.in.WaitNotify(ctx)
					must(t, err)
					for !op.Done() {
						runtime.Gosched()
					}
				},
				"PostBatch, WaitAll": func() {
					_, err := p.out.PostBatch(ws, ops)
					must(t, err)
					must(t, WaitAll(ctx, ops))
				},
				"WriteAt, ReadAt": func() {
					_, err := p.remote.WriteAtContext(ctx, buf, 5)
					must(t, err)
					_, err = p.remote.ReadAtContext(ctx, buf, 5)
					must(t, err)
				},
			} {
				f()
				if n := testing.AllocsPerRun(300, f); n != 0 {
					t.Errorf("%s: %v allocations per run", name, n)
				}
			}
		})
	}
}

func TestStreamZeroAllocations(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			out, in, _ := fakeStream(t, m.cfg)
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
