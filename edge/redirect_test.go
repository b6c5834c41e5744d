package edge_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"multiedge/edge"
	"multiedge/edge/redirect"
)

// What arrives while part of an export is redirected goes to the other memory (VMMC figure 3): all of it if the
// redirection was early, nothing if it was late, and what is told of it is exact if it came meanwhile.
func TestRedirect(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		const size = 1 << 20
		remote, g := edge.ShareOn(t, a, b, size)
		local, err := a.Register(size)
		must(t, err)
		to, err := b.Register(size)
		must(t, err)
		for i := range local.Bytes() {
			local.Bytes()[i] = byte(i*7) | 1
		}
		want := local.Bytes()
		write := func(off, n int) edge.Op {
			op, err := remote.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Local: local, LocalOff: off, Len: n,
				Remote: remote, RemoteOff: off})
			must(t, err)
			return op
		}
		inForce := func(off, n, toOff int) *redirect.Redirection { // a refused one behind it: the daemon has taken both
			t.Helper()
			r, err := redirect.Begin(g, off, n, to, toOff)
			must(t, err)
			twin, err := redirect.Begin(g, off, n, to, toOff)
			must(t, err)
			if err := twin.Wait(ctx); !errors.Is(err, edge.ErrExists) {
				t.Errorf("a redirection of the same bytes: %v, want ErrExists", err)
			}
			return r
		}

		early := inForce(1000, 200_000, 5)
		if err := to.Close(); !errors.Is(err, edge.ErrBusy) {
			t.Errorf("closing the memory of a redirection: %v, want ErrBusy", err)
		}
		op := write(0, 300_000)
		must(t, op.Wait(ctx))
		must(t, early.Wait(ctx))
		spans, err := early.End(ctx)
		must(t, err)
		if !slices.Equal(spans, []redirect.Span{{Len: 200_000}}) ||
			!bytes.Equal(to.Bytes()[5:200_005], want[1000:201_000]) || !bytes.Equal(g.Bytes()[:1000], want[:1000]) ||
			!bytes.Equal(g.Bytes()[201_000:300_000], want[201_000:300_000]) ||
			len(bytes.Trim(g.Bytes()[1000:201_000], "\x00")) > 0 {
			t.Errorf("an early redirection: %v, or bytes elsewhere", spans)
		}

		late, err := redirect.Begin(g, 250_000, 10_000, to, 300_000)
		must(t, err)
		spans, err = late.Take(ctx)
		must(t, err)
		if len(spans) != 0 || !bytes.Equal(to.Bytes()[300_000:310_000], want[250_000:260_000]) {
			t.Errorf("a late redirection: %v, or Take did not copy", spans)
		}

		op = write(400_000, 600_000)
		meanwhile, err := redirect.Begin(g, 400_000, 600_000, to, 400_000)
		must(t, err)
		must(t, op.Wait(ctx))
		spans, err = meanwhile.Take(ctx)
		must(t, err)
		for _, s := range spans {
			if len(bytes.Trim(g.Bytes()[400_000+s.Off:][:s.Len], "\x00")) > 0 {
				t.Errorf("of %v, which were redirected, the export has some", s)
			}
		}
		if !bytes.Equal(to.Bytes()[400_000:1_000_000], want[400_000:1_000_000]) {
			t.Errorf("a redirection meanwhile: %v, and Take has not all", spans)
		}

		must(t, to.Close())
	})
}

// A redirection ends with its connection, and says what it redirected.
func TestRedirectEndsWithConnection(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		remote, g := edge.ShareOn(t, a, b, 4096)
		to, err := b.Register(4096)
		must(t, err)
		r, err := redirect.Begin(g, 0, 4096, to, 0)
		must(t, err)
		must(t, remote.Conn().Close())
		if err := r.Wait(ctx); !errors.Is(err, edge.ErrPeerClosed) {
			t.Errorf("the redirection: %v, want ErrPeerClosed", err)
		}
		if spans, err := r.End(ctx); len(spans) > 0 || !errors.Is(err, edge.ErrPeerClosed) {
			t.Errorf("spans %v, %v; want ErrPeerClosed", spans, err)
		}
		for what, x := range map[string]struct{ off, n, toOff int }{
			"outside the export": {4000, 97, 0}, "outside the memory": {0, 10, 4090}, "empty": {0, 0, 0},
			"before": {-1, 5, 0},
		} {
			if _, err := redirect.Begin(g, x.off, x.n, to, x.toOff); !errors.Is(err, edge.ErrBounds) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// A redirection ends with its export, and says what it redirected.
func TestRedirectEndsWithExport(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		remote, g := edge.ShareOn(t, a, b, 4096)
		to, err := b.Register(4096)
		must(t, err)
		r, err := redirect.Begin(g, 0, 100, to, 0)
		must(t, err)
		twin, err := redirect.Begin(g, 0, 100, to, 0) // behind it: when it is refused the daemon has taken both
		must(t, err)
		if err := twin.Wait(ctx); !errors.Is(err, edge.ErrExists) {
			t.Errorf("a redirection of the same bytes: %v, want ErrExists", err)
		}
		op, err := remote.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte("0123456789"), Remote: remote})
		must(t, err)
		must(t, op.Wait(ctx))
		must(t, g.Revoke())
		spans, err := r.End(ctx)
		if !errors.Is(err, edge.ErrKey) || !slices.Equal(spans, []redirect.Span{{Len: 10}}) {
			t.Errorf("a redirection of an export that was revoked: %v, %v", spans, err)
		}
		must(t, to.Close())
	})
}
