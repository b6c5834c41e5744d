package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"multiedge/internal/lab"
	"multiedge/regmem"
)

// copyPair is two embedded devices on hosts of a lab, with memory at both ends and what it must hold.
type copyPair struct {
	t              *testing.T
	rng            *rand.Rand
	client, server *Device
	out, in        *Conn
	local, target  *Region
	remote         *RemoteRegion
	here, there    []byte // what local and target must hold
}

const copyRegion = 6 << 20

func newCopyPair(t *testing.T, ctx context.Context, how string, faults lab.Faults) *copyPair {
	return newCopyPairOn(t, ctx, lab.Spec{MTU: 9000, Faults: faults}, Embedded{Security: "plaintext",
		Checksum: "header", Copy: how})
}

func newCopyPairOn(t *testing.T, ctx context.Context, spec lab.Spec, e Embedded) *copyPair {
	spec.Seed = 3
	l, err := lab.New(ctx, spec)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	p := &copyPair{t: t, rng: rand.New(rand.NewPCG(4, uint64(len(e.Copy))))}
	var keys, public [2]string
	for i := range keys {
		keys[i], public[i] = newKey()
	}
	for i, d := range []**Device{&p.client, &p.server} {
		h := l.Host(i)
		e.Links, e.Name = h.LinkNames(), h.Name()
		if e.Security != "plaintext" {
			e.Key, e.Peers = keys[i], map[string]string{l.Host(1 - i).Name(): public[1-i]}
		}
		must(t, h.Do(func() (err error) {
			own := e
			*d, err = Open(ctx, Config{Embedded: &own})
			return err
		}))
		t.Cleanup(func() { must(t, (*d).Close()) })
	}
	p.out, p.in = pairOn(t, ctx, p.client, p.server, "mem")
	p.local, err = p.client.Register(copyRegion)
	must(t, err)
	p.target, err = p.server.Register(copyRegion)
	must(t, err)
	_, err = p.target.Export(p.in, "target", RemoteRead|RemoteWrite, 0, copyRegion)
	must(t, err)
	p.remote, err = p.out.Import(ctx, "target")
	must(t, err)
	for i := range p.local.Bytes() {
		p.local.Bytes()[i] = byte(p.rng.Uint32())
	}
	p.here, p.there = bytes.Clone(p.local.Bytes()), make([]byte, copyRegion)
	return p
}

// write writes some ranges at once and compares the destination as each is notified; read reads some.
func (p *copyPair) write(ctx context.Context, ops [][3]int) {
	p.t.Helper()
	var done []Op
	for i, o := range ops {
		from, to, n := o[0], o[1], o[2]
		op, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, LocalOff: from, Len: n, Remote: p.remote,
			RemoteOff: to, Flags: Notify, Imm: uint32(i)})
		must(p.t, err)
		done = append(done, op)
		copy(p.there[to:to+n], p.here[from:])
	}
	for range ops {
		n, err := p.in.WaitNotify(ctx)
		must(p.t, err)
		to := ops[n.Imm][1]
		if !bytes.Equal(p.target.Bytes()[to:to+int(n.Len)], p.there[to:to+int(n.Len)]) {
			p.t.Fatalf("the write of %d bytes to %d is notified and not in place", n.Len, to)
		}
	}
	must(p.t, WaitAll(ctx, done))
	p.compare("target", p.target.Bytes(), p.there)
}

func (p *copyPair) read(ctx context.Context, ops [][3]int) {
	p.t.Helper()
	for _, o := range ops {
		to, from, n := o[0], o[1], o[2]
		op, err := p.out.Post(ctx, &Work{Kind: Read, Local: p.local, LocalOff: to, Len: n, Remote: p.remote,
			RemoteOff: from})
		must(p.t, err)
		must(p.t, op.Wait(ctx))
		copy(p.here[to:to+n], p.there[from:])
	}
	p.compare("local", p.local.Bytes(), p.here)
}

func (p *copyPair) compare(what string, got, want []byte) {
	p.t.Helper()
	for i := range want {
		if got[i] != want[i] {
			p.t.Fatalf("byte %d of the %s region differs", i, what)
		}
	}
}

// counters of a device's transport.
func (p *copyPair) counters(ctx context.Context, d *Device) map[string]uint64 {
	body, err := d.status(ctx, "status")
	must(p.t, err)
	var st struct {
		Counters map[string]uint64 `json:"counters"`
	}
	must(p.t, json.Unmarshal(body, &st))
	return st.Counters
}

// The paper's configurations over real links, clean and with faults: whole pages, parts of pages, places of every
// alignment, several writes at once, reads. Every byte of both regions is right whenever an operation has ended, and
// each configuration makes the copies that it says.
func TestCopyConfigurations(t *testing.T) {
	faulty := lab.Faults{Loss: 0.01, Dup: 0.01, Reorder: 0.01}
	before := regmem.Pinned()
	for _, how := range []string{"", "cp", "notx", "pinmap", "shuffle", "nocp"} {
		for what, faults := range map[string]lab.Faults{"clean": {}, "faulty": faulty} {
			t.Run(fmt.Sprintf("%q/%s", how, what), func(t *testing.T) {
				ctx := testContext(t)
				p := newCopyPair(t, ctx, how, faults)
				for round := range 3 {
					k := round * 4096
					p.write(ctx, [][3]int{{k, 0, 1 << 20}, {1<<20 + 1, 1 << 20, 1 << 20}, {5, 2<<20 + 1, 600_000},
						{0, 3<<20 - 2048 + k, 1<<20 + 77}, {9, 5<<20 + 4096, 300}})
					p.write(ctx, [][3]int{{k + 11, k, 4 << 20}})
					p.read(ctx, [][3]int{{0, k, 2 << 20}, {3<<20 + 3 + k, 1 << 20, 1<<20 + 5}})
				}
				for name, d := range map[string]*Device{"client": p.client, "server": p.server} {
					c := p.counters(ctx, d)
					in, ex := c["frames_in_place"], c["frames_exchanged"]
					t.Logf("%s: %d data frames, %d in place, %d exchanged in %d runs, %d bytes copied after all", name,
						c["data_frames_received"], in, ex, c["exchanges"], c["bytes_unexchanged"])
					if (ex > 0) != (how == "pinmap" || how == "shuffle") || (in > 0) != (how == "nocp") {
						t.Errorf("%s: %d payloads in place, %d exchanged", name, in, ex)
					}
					if sh := c["frames_shuffled"]; (sh > 0) != (how == "shuffle") {
						t.Errorf("%s: %d frames shuffled", name, sh)
					}
				}
				must(t, p.local.Close())
				must(t, p.target.Close())
			})
		}
	}
	if now := regmem.Pinned(); now != before {
		t.Errorf("%d bytes stay pinned", now-before)
	}
}

// Header shuffle (paper 2.3.2) over one link and two, with every alignment of the destination: frames arrive shuffled
// and in whole pages, which are exchanged; at an MTU that no page fits in they are copied; and sealed frames, which are
// opened into other memory than they arrived in, are not shuffled at all. Every byte of both regions is right all the
// same.
func TestShuffledOverLinks(t *testing.T) {
	faulty := lab.Faults{Loss: 0.01, Dup: 0.01, Reorder: 0.02, Corrupt: 0.005}
	for _, c := range []struct {
		links, mtu int
		security   string
		faults     lab.Faults
		exchanges  bool
	}{
		{1, 9000, "plaintext", lab.Faults{}, true},
		{2, 9000, "plaintext", lab.Faults{}, true},
		{2, 9000, "plaintext", faulty, true},
		{1, 4000, "plaintext", lab.Faults{}, false},
		{1, 9000, "encrypted", lab.Faults{}, false},
		{2, 9000, "encrypted", faulty, false},
	} {
		name := fmt.Sprintf("%d links of %d, %s, loss %v", c.links, c.mtu, c.security, c.faults.Loss)
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			p := newCopyPairOn(t, ctx, lab.Spec{Links: c.links, MTU: c.mtu, Faults: c.faults},
				Embedded{Security: c.security, Copy: "shuffle"})
			for round := range 3 {
				k := round * 2048
				p.write(ctx, [][3]int{{k, 0, 1 << 20}, {1<<20 + 1, 1 << 20, 1 << 20}, {5, 2<<20 + 1, 600_000}})
				p.write(ctx, [][3]int{{k + 11, k, 4 << 20}})
				p.read(ctx, [][3]int{{0, k, 2 << 20}, {3<<20 + 3 + k, 1 << 20, 1<<20 + 5}})
			}
			for name, d := range map[string]*Device{"client": p.client, "server": p.server} {
				n := p.counters(ctx, d)
				t.Logf("%s: %d data frames, %d shuffled, %d exchanged in %d runs", name, n["data_frames_received"],
					n["frames_shuffled"], n["frames_exchanged"], n["exchanges"])
				// over two links forecasts may all go wrong: then payloads are copied
				if (n["frames_shuffled"] > 0) != (c.security == "plaintext") || n["exchanges"] > 0 && !c.exchanges ||
					c.exchanges && c.links == 1 && n["frames_exchanged"] == 0 {
					t.Errorf("%s: %d frames shuffled, %d exchanged", name, n["frames_shuffled"], n["frames_exchanged"])
				}
				if n["frames_in_place"] > 0 {
					t.Errorf("%s: %d frames received into a region, headers included", name, n["frames_in_place"])
				}
			}
		})
	}
}

// Memory taken back in the middle of a transfer: nothing of it changes afterwards, in particular not because received
// pages come late.
func TestExchangeAgainstRevoke(t *testing.T) {
	ctx := testContext(t)
	p := newCopyPair(t, ctx, "pinmap", lab.Faults{Loss: 0.05})
	// with a pool and without
	for _, size := range []int{1, 256<<10 - 4097, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1<<20 - 1} {
		before := regmem.Pinned()
		r, err := p.server.Register(size)
		must(t, err)
		r.Bytes()[size-1] = 1
		must(t, r.Close())
		if now := regmem.Pinned(); now != before {
			t.Errorf("of a region of %d bytes %d stay pinned", size, now-before)
		}
	}
	for round := range 8 {
		g, err := p.target.Export(p.in, fmt.Sprint("again", round), RemoteWrite, 0, copyRegion)
		must(t, err)
		remote, err := p.out.Import(ctx, g.Name())
		must(t, err)
		op, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, LocalOff: round, Len: 4 << 20,
			Remote: remote})
		must(t, err)
		// some of it is there
		for at := round * 500_000; at < 4<<20 && p.target.Bytes()[at] != p.here[at+round] && !op.Done(); {
			p.client.Poll()
			p.server.Poll()
		}
		must(t, g.Revoke())
		snap := bytes.Clone(p.target.Bytes())
		err = op.Wait(ctx)
		if err != nil && !errors.Is(err, ErrKey) {
			t.Fatalf("round %d: %v", round, err)
		}
		p.compare("target", p.target.Bytes(), snap)
	}
}

// A device that goes in the middle of transfers takes its memory with it, and nothing else.
func TestExchangeAgainstClose(t *testing.T) {
	before := regmem.Pinned()
	for _, server := range []bool{true, false} {
		ctx := testContext(t)
		p := newCopyPair(t, ctx, "pinmap", lab.Faults{Loss: 0.02})
		goes, stays := p.client, p.server
		if server {
			goes, stays = stays, goes
		}
		write, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, Len: 4 << 20, Remote: p.remote})
		must(t, err)
		read, err := p.out.Post(ctx, &Work{Kind: Read, Local: p.local, Len: 4 << 20, Remote: p.remote})
		must(t, err)
		for got := uint64(0); got < 1<<20 && !write.Done() && !read.Done(); {
			got = p.counters(ctx, p.server)["payload_received"]
		}
		must(t, goes.Close())
		for _, op := range []Op{write, read} {
			if err := op.Wait(ctx); ctx.Err() != nil {
				t.Fatalf("an operation does not end: %v", err)
			}
		}
		must(t, stays.Close())
		if now := regmem.Pinned(); now != before {
			t.Errorf("%d bytes stay pinned", now-before)
		}
	}
}

func TestCopyMisconfigured(t *testing.T) {
	_, err := NewFabric().OpenConfig(testContext(t), "n", Config{Embedded: &Embedded{Copy: "zero"}})
	if err == nil || !strings.Contains(err.Error(), `copy: "zero" is not one of cp, notx, pinmap, shuffle, nocp`) {
		t.Errorf("error %v", err)
	}
}
