package regmem

import (
	"fmt"
	"testing"
)

func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{1, 2, 64, 10000} {
		tab, keys := filled(b, n)
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := tab.Resolve(keys[i], alice, RemoteWrite, 8192, 8192); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
	tab, _ := filled(b, 10000)
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		for k := Key(1); b.Loop(); k += 0x9E3779B97F4A7C15 {
			tab.Resolve(k, alice, RemoteWrite, 0, 8)
		}
	})
}

func BenchmarkGrantRevoke(b *testing.B) {
	b.ReportAllocs()
	tab, _ := filled(b, 10000)
	r := &Region{Mem: Wrap(make([]byte, 8))}
	for b.Loop() {
		tab.Revoke(mustGrant(b, tab, r, bob, RemoteRead, 0, 8))
	}
}
