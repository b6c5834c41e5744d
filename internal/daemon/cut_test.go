package daemon

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// counted is an entry that knows how often any was made JSON of.
type counted struct {
	n    int
	made *int
}

func (c counted) MarshalJSON() ([]byte, error) {
	*c.made++
	return fmt.Appendf(nil, "\"%03998d\"", c.n), nil
}

// Whichever page of a long list a user asks for, again and again, and whatever else he asks for, the list is gone
// through once, and every entry is on one page.
func TestPagesCostWhatIsInThem(t *testing.T) {
	const entries = 1000
	made, most, list := 0, inspect.PageRoom/4000+1, make([]counted, entries)
	for i := range list {
		list[i] = counted{i, &made}
	}
	var c cuts
	snap := &inspect.Snapshot{}
	get := func(p int) (*ipc.Message, int) {
		before := made
		m, err := page(&ipc.Message{Page: p}, list, c.list(snap, "conn"))
		must(t, err)
		return m, made - before
	}
	for i := range 2 * len(whats) {
		c.list(snap, fmt.Sprint("nonsense ", i))
	}
	if m, n := get(1 << 40); string(m.Body) != "[]" || m.More || n != entries {
		t.Errorf("past the end: %d bytes, %d entries are looked at", len(m.Body), n)
	}
	for p := range 3 {
		if _, n := get(1<<40 - p); n > most {
			t.Errorf("past the end: %d entries are looked at, want %d at most", n, most)
		}
	}
	next := 0
	for p, more := 0, true; more; p++ {
		m, n := get(p)
		var numbers []string
		if err := json.Unmarshal(m.Body, &numbers); err != nil || n > most || len(numbers) == 0 {
			t.Fatalf("page %d: %d entries, %d are looked at: %v", p, len(numbers), n, err)
		}
		for _, k := range numbers {
			if got, _ := strconv.Atoi(k); got != next {
				t.Fatalf("page %d: entry %d, want %d", p, got, next)
			}
			next++
		}
		more = m.More
	}
	if next != entries {
		t.Errorf("%d of %d entries are on pages", next, entries)
	}
	snap = &inspect.Snapshot{}
	if _, n := get(1); n <= most {
		t.Errorf("%d entries of a fresh snapshot are looked at: its pages may begin elsewhere", n)
	}
}
