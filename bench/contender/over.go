package contender

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// Over is the kernel's TCP under a contender.
type Over struct {
	Congestion string // its congestion control; empty: DefaultCongestion
	Free       bool   // threads run on any processor, not on those of their host
}

// Missing implements Contender, for those that need no more than this.
func (Over) Missing() string { return "" }

// Does implements Contender, for streams.
func (Over) Does(t string) bool {
	return t == report.OneWay || t == report.TwoWay || t == report.PingPong
}

// DefaultCongestion is what nearly every Linux host uses.
const DefaultCongestion = "cubic"

// Usual returns the congestion controls to compare with unless others were asked for: DefaultCongestion, and bbr, the
// default of some kernels, where this one has it.
func Usual() []string {
	known, err := lab.CongestionControls()
	if err == nil && slices.Contains(known, "bbr") {
		return []string{DefaultCongestion, "bbr"}
	}
	return []string{DefaultCongestion}
}

func (o Over) congestion() string { return cmp.Or(o.Congestion, DefaultCongestion) }

// variant names the setting, behind other words of a contender's variant.
func (o Over) variant(words ...string) string {
	words = append(words, o.congestion())
	if o.Free {
		words = append(words, report.CoresFree)
	}
	return strings.Join(words, " ")
}

// begin sets the hosts of j up and returns the job to do, and its row.
func (o Over) begin(c Contender, j *Job) (*Job, *report.Row) {
	for _, h := range j.Hosts {
		kit.Check(h.SetCongestion(o.congestion()))
	}
	mine := *j
	if o.Free {
		mine.CPUs = [2][]int{}
	}
	return &mine, mine.row(c)
}

// confirm notes in a row what congestion control a socket of the contender had. It is an error if that is not what was
// asked for: the row would bear a wrong name.
func (o Over) confirm(row *report.Row, had ...string) error {
	for _, name := range had {
		if row.Congestion = name; name != o.congestion() {
			return fmt.Errorf("its sockets have the congestion control %q, not %q: does the program choose its own, "+
				"or did something change the routes of the lab's hosts?", name, o.congestion())
		}
	}
	return nil
}

// probe confirms by a connection between the hosts of j, for programs that do not say what theirs had.
func (o Over) probe(row *report.Row, j *Job) {
	f := &flow{}
	defer f.close()
	f.connect(j.Hosts[0], j.Hosts[1], false)
	f.confirm(o, row)
}
