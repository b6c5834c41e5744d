package notify

import "testing"

// The frames of a round are found by time and length, whatever acknowledgements travel between them.
func TestMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		sent, got []frame
		want      [2]int64 // of the second round
	}{
		"alone":              {[]frame{{110, 90}, {210, 90}}, []frame{{120, 90}, {220, 90}}, [2]int64{210, 220}},
		"an acknowledgement": {[]frame{{205, 60}, {210, 90}}, []frame{{206, 60}, {220, 90}}, [2]int64{210, 220}},
		"one of the round before": {[]frame{{110, 90}, {210, 90}}, []frame{{120, 90}, {199, 90}, {220, 90}},
			[2]int64{210, 220}},
		"a late acknowledgement": {[]frame{{205, 60}, {210, 90}}, []frame{{212, 60}, {220, 90}}, [2]int64{210, 220}},
		"not sent":               {[]frame{{110, 90}}, []frame{{220, 90}}, [2]int64{}},
		"not received":           {[]frame{{210, 90}}, []frame{{120, 90}}, [2]int64{}},
		"after its use":          {[]frame{{210, 90}}, []frame{{260, 90}}, [2]int64{}},
		"before departure":       {[]frame{{210, 90}}, []frame{{205, 90}, {215, 90}}, [2]int64{210, 215}},
	} {
		rounds := []round{{post: 100, start: 150}, {post: 200, start: 250}}
		match(rounds, tc.sent, tc.got)
		if got := [2]int64{rounds[1].sent, rounds[1].got}; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
