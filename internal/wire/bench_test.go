package wire

import "testing"

// What a frame costs before and behind the engine: its headers and sums made, checked and read, with the sum of 8 KiB
// of payload and without.

func BenchmarkFrame(b *testing.B) {
	payload := make([]byte, 8<<10)
	for _, c := range []struct {
		name  string
		flags uint8
	}{{"header summed", 0}, {"payload summed", FlagPayloadSum}} {
		h, bulk := Header{Type: TypeData, Flags: c.flags, Session: 9, PN: 1}, theBulk()
		b.Run("make, "+c.name, func(b *testing.B) {
			frame := build(h, bulk, payload, ping)
			b.ReportAllocs()
			for b.Loop() {
				if c.flags != 0 {
					bulk.Sum = Sum(0, payload)
				}
				PutBulk(frame[FixedLen:], bulk)
				Finish(frame, &h, ping)
			}
		})
		b.Run("read, "+c.name, func(b *testing.B) {
			bulk.Sum = Sum(0, payload)
			frame := build(h, bulk, payload, ping)
			var f Frame
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Decode(frame); err != nil || !f.PayloadIntact() {
					b.Fatal("refused: ", err)
				}
			}
		})
	}
}

// BenchmarkSmallWrites is the tail of a frame in which 100 writes of 8 bytes share it, written and read.
func BenchmarkSmallWrites(b *testing.B) {
	const writes = 100
	first := Segment{Kind: KindWrite, Flags: SegFirst | SegLast, Conn: 1, Data: make([]byte, 8)}
	next := Segment{Kind: KindWriteNext, Flags: SegFirst | SegLast, Data: make([]byte, 8)}
	fill := func(tail []byte) []byte {
		tail = first.AppendTo(tail)
		for range writes - 1 {
			tail = next.AppendTo(tail)
		}
		return tail
	}
	tail := fill(nil)
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tail = fill(tail[:0])
		}
	})
	b.Run("read", func(b *testing.B) {
		var s Segment
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for rest := tail; len(rest) > 0; n++ {
				var err error
				if rest, err = s.Next(rest); err != nil {
					b.Fatal(err)
				}
			}
			if n != writes {
				b.Fatal(n, " segments")
			}
		}
	})
}
