package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// Of several exports of a name the newest counts, in whatever order they become known, and an older one again when that
// is revoked.
func TestExportsOfOneName(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	say := func(number uint32) {
		p.out.advertised(&ipc.Message{Kind: ipc.KindAdvert, Name: "name", Key: uint64(number), Size: 1,
			Perm: uint8(RemoteRead), Number: number})
	}
	newest := func(want uint32) {
		t.Helper()
		r, err := p.out.Import(ctx, "name")
		must(t, err)
		if r.number != want || r.revoked.Load() {
			t.Errorf("imported number %d, want %d", r.number, want)
		}
	}
	before := len(p.out.adverts)
	say(1002)
	say(1001)
	newest(1002)
	say(1004)
	say(1003)
	newest(1004)
	for _, step := range [][2]uint32{{1002, 1004}, {1004, 1003}, {1003, 1001}} {
		p.out.withdrawn(uint64(step[0]))
		newest(step[1])
	}
	p.out.withdrawn(1001)
	if r, _ := p.out.lookup("name"); r != nil || len(p.out.adverts) != before {
		t.Errorf("afterwards there is %+v; %d names, %d before", r, len(p.out.adverts), before)
	}
	for n := range uint32(10 * ofOneName) {
		say(n)
	}
	newest(10*ofOneName - 1)
	remembered := 0
	for r := p.out.adverts["name"]; r != nil; r = r.older {
		remembered++
	}
	if remembered != ofOneName {
		t.Errorf("%d of one name are remembered, want %d", remembered, ofOneName)
	}
}

// Who waits in vain for memory is told for what, and why in vain.
func TestImportOfWhatIsNotExported(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	for want, end := range map[error]func() (context.Context, context.CancelFunc){
		context.DeadlineExceeded: func() (context.Context,
			context.CancelFunc) {
			return context.WithDeadline(testContext(t), time.Now())
		},
		context.Canceled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(testContext(t))
			cancel()
			return ctx, cancel
		},
	} {
		ctx, cancel := end()
		_, err := p.out.Import(ctx, "tabel")
		cancel()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), p.out.Peer()+` exports no memory named "tabel"`) {
			t.Errorf("%v: %v", want, err)
		}
	}
}

// A peer that exports without end loses that connection, and we remember a bounded number of names.
func TestExportsWithoutEnd(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	for i := range inner.MaxImports { // one name is there already
		_, err := p.exported.Export(p.in, fmt.Sprint(i), RemoteRead, 0, 1)
		must(t, err)
	}
	if _, err := p.out.Import(ctx, "never"); !errors.Is(err, ErrLimit) {
		t.Fatalf("import: %v", err)
	}
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	if n := len(p.out.adverts); n != inner.MaxImports {
		t.Errorf("%d names are remembered", n)
	}
	must(t, p.client.Err())
}
