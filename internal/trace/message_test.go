package trace

import (
	"strings"
	"testing"

	"multiedge/internal/wire"
)

// Segments of messages read as clause 14 names them.
func TestMessagesAreDescribed(t *testing.T) {
	for want, g := range map[string]wire.Segment{
		"| send conn 1 op 2 message 3 at 4, 5 bytes first last notify strict": {Kind: wire.KindSend, Conn: 1, Op: 2,
			Flags: wire.SegFirst | wire.SegLast | wire.SegNotify | wire.SegStrict, Key: 3, Place: 4,
			Data: make([]byte, 5)},
		"| tell conn 1 op 2 message 3 of 4 bytes written first last notify": {Kind: wire.KindTell, Conn: 1, Op: 2,
			Flags: wire.SegFirst | wire.SegLast | wire.SegNotify, Key: 3, Size: 4},
		"| credit conn 1 messages below 9 shared": {Kind: wire.KindCredit, Flags: wire.CreditShared, Conn: 1, Limit: 9},
		"| want conn 1 messages below 9":          {Kind: wire.KindWant, Conn: 1, Key: 9},
	} {
		var d describer
		if d.segment(&g); strings.TrimSpace(d.String()) != want {
			t.Errorf("%q, want %q", d.String(), want)
		}
	}
}
