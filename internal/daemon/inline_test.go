package daemon

import (
	"bytes"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// inlined is a write of n bytes by value, the first of which is first, in as few entries as there can be (A6.19).
func inlined(common ipc.SQE, n int, first byte) (es []ipc.SQE) {
	all := make([]byte, n)
	for i := range all {
		all[i] = first + byte(i)
	}
	for rest := n - ipc.MaxInline; rest > 0; rest -= ipc.BytesPerEntry {
		e := ipc.SQE{Op: ipc.OpBytes, InlineLen: uint8(min(rest, ipc.BytesPerEntry)), Conn: common.Conn}
		all = all[copy(e.Inline[:e.InlineLen], all):]
		es = append(es, e)
	}
	common.Op, common.InlineLen = ipc.OpWrite, uint8(len(all))
	copy(common.Inline[:], all)
	return append(es, common)
}

// Bytes that precede their operation arrive before its own, whatever is behind them on the ring; and what an entry
// lacks of 56 is no byte of the operation.
func TestInlineBytes(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	atServer, conn := connect(t, server, client, "a", "mem")
	region, target := server.register(4096)
	common := ipc.SQE{Conn: conn, Key: exportTo(server, client, atServer, region, 4096, regmem.RemoteWrite)}
	for i, n := range []int{1, ipc.MaxInline, ipc.MaxInline + 1, 80, 81, 500, ipc.MaxBytes} {
		common.Token, common.RemoteOff = uint64(2*i), uint64(i)
		es := inlined(common, n, byte(i))
		common.Token, common.RemoteOff = uint64(2*i+1), 2048
		client.post(append(es, inlined(common, 2, 0xe0)...)...)
		for range 2 {
			if e := client.completion(); e.Status != ipc.StatusOK || e.Token>>1 != uint64(i) {
				t.Fatalf("%d bytes: %+v", n, e)
			}
		}
		want := make([]byte, n)
		for k := range want {
			want[k] = byte(i + k)
		}
		if !bytes.Equal(target[i:][:n], want) || target[i+n] != 0 && i+n >= ipc.MaxBytes || target[2049] != 0xe1 {
			t.Errorf("%d bytes: other bytes", n)
		}
	}
	es := inlined(common, 80, 1)
	es[0].InlineLen = 3
	clear(es[0].Inline[3:])
	common.RemoteOff = 0
	es[1].RemoteOff = 0
	clear(target)
	client.post(es...)
	if e := client.completion(); e.Status != ipc.StatusOK || target[2] != 3 || target[3] != 57 || target[27] != 0 {
		t.Errorf("3 and 24 bytes: %+v, % x", e, target[:28])
	}
}

// Operations with bytes before them count as five for limits.ops_per_user, until they have ended.
func TestInlineBytesCount(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.Limits = config.Limits{OpsPerUser: 11} })
	server, client := attach(t, a, 64), attach(t, b, 64)
	_, conn := connect(t, server, client, "a", "s")
	for range 2 {
		until(t, "hold of a", deadline, func() bool { return a.d.shard.Hold() })
		for token := range uint64(4) {
			client.post(inlined(ipc.SQE{Conn: conn, Token: token, Key: 1}, 100, 0)...)
		}
		if e := client.completion(); e.Status != ipc.StatusQuota || e.Token != 3 {
			t.Fatalf("beyond the limit: %+v", e)
		}
		a.d.shard.Release()
		for range 3 {
			if e := client.completion(); e.Status != ipc.StatusKey {
				t.Fatalf("within the limit: %+v", e)
			}
		}
	}
}

// A client whose bytes are too many, or belong to nothing that can have them, is ended, and nobody else.
func TestHostileInlineBytes(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server := attach(t, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	for name, spoil := range map[string]func(conn uint32) []ipc.SQE{
		"1025 bytes": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, ipc.MaxBytes, 0)
			es[len(es)-2].InlineLen++
			return es
		},
		"bytes without end": func(conn uint32) (es []ipc.SQE) {
			for range 32 {
				es = append(es, ipc.SQE{Op: ipc.OpBytes, InlineLen: ipc.BytesPerEntry, Conn: conn})
			}
			return es
		},
		"of another connection": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, 100, 0)
			es[len(es)-1].Conn++
			return es
		},
		"of two connections": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, 100, 0)
			es[1].Conn++
			return es
		},
		"before a range": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, 100, 0)
			return append(es[:2], ipc.SQE{Op: ipc.OpWrite, Conn: conn})
		},
		"before a read": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, 100, 0)
			return append(es[:2], ipc.SQE{Op: ipc.OpRead, Conn: conn})
		},
		"before an atomic": func(conn uint32) []ipc.SQE {
			e := ipc.SQE{Conn: conn}
			e.SetAtomic(ipc.AtomicAdd, 8, 1, 0)
			return append(inlined(ipc.SQE{Conn: conn}, 100, 0)[:2], e)
		},
		"before credit": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, 100, 0)
			return append(es[:2], ipc.SQE{Op: ipc.OpCredit, Conn: conn, Imm: 1})
		},
		"before pieces": func(conn uint32) []ipc.SQE {
			es := inlined(ipc.SQE{Conn: conn}, 100, 0)
			return append(es[:2], ipc.SQE{Op: ipc.OpPieces, InlineLen: 1, Conn: conn})
		},
		"behind pieces": func(conn uint32) []ipc.SQE {
			es := []ipc.SQE{{Op: ipc.OpPieces, InlineLen: 1, Conn: conn}}
			return append(es, inlined(ipc.SQE{Conn: conn}, 100, 0)...)
		},
	} {
		client := attach(t, b, 64)
		_, conn := dialAccept(t, server, client, "a", "s")
		before := snapshot(t, b.Daemon()).Status.Evictions
		client.post(spoil(conn)...)
		client.gone()
		until(t, name, deadline, func() bool { return snapshot(t, b.Daemon()).Status.Evictions == before+1 })
	}
}
