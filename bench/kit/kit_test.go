package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"multiedge/internal/lab"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { Tests(m.Run) }

var errTest = errors.New("no")

// Work ends at the first error, which keeps its identity; what was deferred is done; other panics go on.
func TestTry(t *testing.T) {
	done := false
	err := Try(func() {
		defer func() { done = true }()
		Doing(func() { Check(errTest) }, "step %d", 3)
		t.Error("the work went on")
	})
	if !errors.Is(err, errTest) || err.Error() != "step 3: no" || !done {
		t.Errorf("%v, deferred %v", err, done)
	}
	got := 0
	err = Try(func() {
		Check(nil)
		got = Get(4, nil)
		a, b := Get2(1, "x", nil)
		if a != 1 || b != "x" {
			t.Errorf("%d, %s", a, b)
		}
	})
	if err != nil || got != 4 {
		t.Errorf("%d, %v", got, err)
	}
	defer func() {
		if recover() != "BUG" {
			t.Error("another panic was taken for a failure")
		}
	}()
	_ = Try(func() { panic("BUG") })
}

// parrot repeats its orders, and ends with an error when it is told to.
func parrot(ctx context.Context, p *Port) error {
	var job string
	if err := p.Job(&job); err != nil {
		return err
	}
	p.Started()
	p.Note(job)
	for text := range p.Orders {
		var order string
		if err := json.Unmarshal(text, &order); err != nil {
			return err
		}
		if order == "fail" {
			return errTest
		}
		if err := p.Emit(order); err != nil {
			return err
		}
	}
	return nil
}

func init() { AddRole("parrot", parrot) }

// What a process says and hears are lines of JSON; the end of its orders ends it.
func TestPort(t *testing.T) {
	for orders, want := range map[string]string{
		`"a"` + "\n" + `"b"` + "\n":    `{"started":true}{"note":"job"}{"body":"a"}{"body":"b"}`,
		`"fail"` + "\n" + `"b"` + "\n": `{"started":true}{"note":"job"}{"error":"no"}`,
	} {
		var out bytes.Buffer
		err := NewPort(`"job"`, strings.NewReader(orders), &out).Run(t.Context(), parrot)
		got := strings.ReplaceAll(out.String(), "\n", "")
		if got != want || (err != nil) != strings.Contains(want, "error") {
			t.Errorf("%q: %s, %v", orders, got, err)
		}
	}
}

// The same with processes in hosts: one that is told to end, one that fails, and one that is not known.
func TestProcesses(t *testing.T) {
	c, err := NewCluster(t.Context(), ClusterSpec{Lab: lab.Spec{Hosts: 2}, Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := Outcome(func() *Process { return c.Start(1, "parrot", "job") })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.AwaitStarted(t.Context()), p.Tell("hear"), p.Tell("fail")); err != nil {
		t.Fatal(err)
	}
	var said []string
	for e := range p.Events {
		var body string
		if err := e.Into(&body); err != nil {
			t.Error(err)
		}
		said = append(said, e.Note+body+e.Error)
	}
	if got := strings.Join(said, " "); got != "job hear no" || !strings.Contains(p.Failure().Error(), "no") {
		t.Errorf("%q, then %v", got, p.Failure())
	}
	unknown, err := Outcome(func() *Process { return c.Start(0, "nobody", "job") })
	if err != nil {
		t.Fatal(err)
	}
	if err := unknown.AwaitStarted(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown role: %v", err)
	}
	if Try(func() { c.Start(0, "parrot", func() {}) }) == nil {
		t.Error("a job that is no JSON")
	}
}
