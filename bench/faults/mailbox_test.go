package faults

import (
	"bytes"
	"strings"
	"testing"

	"multiedge/bench/kit"
	"multiedge/edge"
)

// What comes of a connection must be what its sender's script says, message after message.
func TestMessagesAreJudged(t *testing.T) {
	sent := newScript(3, "a-1")
	message := func(n uint32) (*edge.Completion, []byte) {
		b := make([]byte, sent.length(n))
		sent.src.Fill(b, sent.id(n))
		return &edge.Completion{Imm: n, HasImm: true, Len: len(b)}, b
	}
	for _, tc := range []struct {
		name  string
		come  []uint32
		spoil func(c *edge.Completion, b []byte)
		wrong string
	}{
		{"in order", []uint32{0, 1, 2, 3}, nil, ""},
		{"one twice", []uint32{0, 1, 1}, nil, "message 2 of"},
		{"one missing", []uint32{0, 2}, nil, "message 1 of"},
		{"overtaken", []uint32{1, 0}, nil, "message 0 of"},
		{"a byte", []uint32{0}, func(_ *edge.Completion, b []byte) { b[len(b)-1] ^= 1 }, "wrong bytes"},
		{"no immediate", []uint32{0}, func(c *edge.Completion, _ []byte) { c.HasImm = false }, "message 0 of"},
	} {
		var out bytes.Buffer
		s := &server{w: &worker{Port: kit.NewPort("{}", strings.NewReader(""), &out)}}
		l := &correspondence{script: newScript(3, "a-1")}
		for _, n := range tc.come {
			c, b := message(n)
			if tc.spoil != nil {
				tc.spoil(c, b)
			}
			l.judge(s, &target{id: "a-1"}, c, b)
		}
		if got := out.String(); (got == "") != (tc.wrong == "") || !strings.Contains(got, tc.wrong) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.wrong)
		}
	}
	if other := newScript(3, "a-2"); other.seed == sent.seed {
		t.Error("two connections have one script")
	}
}

// No more messages may come than were sent, and all that the sender was told of, unless the receiver's daemon died.
func TestMessagesAreCounted(t *testing.T) {
	for _, tc := range []struct {
		came           uint32
		crashed        bool
		notes, crashes int
	}{{5, false, 0, 0}, {7, false, 0, 0}, {9, false, 0, 0}, {10, false, 1, 0}, {4, false, 1, 0}, {4, true, 0, 1}} {
		var out Checked
		l := &correspondence{next: tc.came}
		l.counts(&out, &Claim{Sent: 9, Arrived: 5}, tc.crashed)
		if out.Notes != tc.notes || out.Crashed != tc.crashes {
			t.Errorf("%+v: %+v", tc, out)
		}
	}
}
