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

// The same with processes in hosts: one that is told to end, two that fail together, and one that is not known.
func TestProcesses(t *testing.T) {
	c, err := NewCluster(t.Context(), ClusterSpec{Lab: lab.Spec{Hosts: 2}, Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	crew := NewCrew()
	defer crew.Stop()
	for _, name := range []string{"polly", "jack"} {
		err := Try(func() {
			crew.Add(name, c.Start(1, "parrot", "job"))
			crew.AwaitStarted(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if err := errors.Join(crew.Process(i).Tell("hear"), crew.Process(i).Tell("fail")); err != nil {
			t.Fatal(err)
		}
	}
	var said [2]string
	err = Try(func() {
		for {
			var body string
			e := crew.Next(t.Context())
			Check(e.Into(&body))
			said[e.Member] += e.Note + body
		}
	})
	if err == nil || !strings.Contains(err.Error(), "polly: no") || !strings.Contains(err.Error(), "jack: no") {
		t.Errorf("two that fail: %v", err)
	}
	if said[0]+said[1] == "" || strings.ReplaceAll(strings.ReplaceAll(said[0]+said[1], "job", ""), "hear", "") != "" {
		t.Errorf("heard %q", said)
	}
	if err := crew.Process(0).Failure(); !strings.Contains(err.Error(), "no") || crew.Process(0).Ends() == nil {
		t.Errorf("polly: %v", err)
	}
	alone := NewCrew()
	defer alone.Stop()
	err = Try(func() { alone.Add("it", c.Start(0, "nobody", "job")); alone.AwaitStarted(t.Context()) })
	if err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown role: %v", err)
	}
	if Try(func() { c.Start(0, "parrot", func() {}) }) == nil {
		t.Error("a job that is no JSON")
	}
}
