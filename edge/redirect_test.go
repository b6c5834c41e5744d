package edge

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// What arrives while part of an export is redirected goes to the other memory (VMMC figure 3): all of it if the
// redirection was early, nothing if it was late, and what is told of it is exact if it came meanwhile.
func TestRedirect(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		const size = 1 << 20
		remote, g := shareOn(t, a, b, size)
		local, err := a.Register(size)
		must(t, err)
		to, err := b.Register(size)
		must(t, err)
		for i := range local.Bytes() {
			local.Bytes()[i] = byte(i*7) | 1
		}
		want := local.Bytes()
		write := func(off, n int) Op {
			op, err := remote.conn.PostWait(ctx, &Work{Kind: Write, Local: local, LocalOff: off, Len: n, Remote: remote,
				RemoteOff: off})
			must(t, err)
			return op
		}
		inForce := func(r *Redirection, err error) *Redirection { // a refused one behind it: the daemon has taken both
			t.Helper()
			must(t, err)
			twin, err := g.Redirect(r.off, r.n, to, r.toOff)
			must(t, err)
			if err := twin.Wait(ctx); !errors.Is(err, ErrExists) {
				t.Errorf("a redirection of the same bytes: %v, want ErrExists", err)
			}
			return r
		}

		early := inForce(g.Redirect(1000, 200_000, to, 5))
		if err := to.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing the memory of a redirection: %v, want ErrBusy", err)
		}
		op := write(0, 300_000)
		must(t, op.Wait(ctx))
		must(t, early.Wait(ctx))
		spans, err := early.End(ctx)
		must(t, err)
		if !slices.Equal(spans, []Span{{0, 200_000}}) || !bytes.Equal(to.Bytes()[5:200_005], want[1000:201_000]) ||
			!bytes.Equal(g.Bytes()[:1000], want[:1000]) ||
			!bytes.Equal(g.Bytes()[201_000:300_000], want[201_000:300_000]) ||
			len(bytes.Trim(g.Bytes()[1000:201_000], "\x00")) > 0 {
			t.Errorf("an early redirection: %v, or bytes elsewhere", spans)
		}

		late, err := g.Redirect(250_000, 10_000, to, 300_000)
		must(t, err)
		spans, err = late.Take(ctx)
		must(t, err)
		if len(spans) != 0 || !bytes.Equal(to.Bytes()[300_000:310_000], want[250_000:260_000]) {
			t.Errorf("a late redirection: %v, or Take did not copy", spans)
		}

		op = write(400_000, 600_000)
		meanwhile, err := g.Redirect(400_000, 600_000, to, 400_000)
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

		revoked := inForce(g.Redirect(0, 100, to, 0))
		op = write(0, 10)
		must(t, op.Wait(ctx))
		must(t, g.Revoke())
		if spans, err = revoked.End(ctx); !errors.Is(err, ErrKey) || !slices.Equal(spans, []Span{{0, 10}}) {
			t.Errorf("a redirection of an export that was revoked: %v, %v", spans, err)
		}
		must(t, to.Close())
	})
}

// A redirection ends with its connection, and says what it redirected.
func TestRedirectEndsWithConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		remote, g := shareOn(t, a, b, 4096)
		to, err := b.Register(4096)
		must(t, err)
		r, err := g.Redirect(0, 4096, to, 0)
		must(t, err)
		must(t, remote.conn.Close())
		if err := r.Wait(ctx); !errors.Is(err, ErrPeerClosed) {
			t.Errorf("the redirection: %v, want ErrPeerClosed", err)
		}
		if spans, err := r.End(ctx); len(spans) > 0 || !errors.Is(err, ErrPeerClosed) {
			t.Errorf("spans %v, %v; want ErrPeerClosed", spans, err)
		}
		for what, x := range map[string]struct{ off, n, toOff int }{
			"outside the export": {4000, 97, 0}, "outside the memory": {0, 10, 4090}, "empty": {0, 0, 0},
			"before": {-1, 5, 0},
		} {
			if _, err := g.Redirect(x.off, x.n, to, x.toOff); !errors.Is(err, ErrBounds) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
