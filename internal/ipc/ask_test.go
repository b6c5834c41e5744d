package ipc

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

// A list that comes in pages is asked for page by page and is one list in the end; what is no list is as it came.
func TestAsk(t *testing.T) {
	for _, c := range []struct {
		answers []Message
		want    string
		refused bool
	}{
		{[]Message{{Body: []byte(`{"a":1}`)}}, `{"a":1}`, false},
		{[]Message{{Body: []byte(`[]`)}}, `[]`, false},
		{[]Message{{Body: []byte(`[1,{"b":2}]`), More: true}, {Body: []byte(`[3]`), More: true}, {Body: []byte(`[]`)}},
			`[1,{"b":2},3]`, false},
		{[]Message{{Body: []byte(`[1]`), More: true}, {Error: &Error{Text: "no"}}}, "", true},
		{[]Message{{Body: []byte(`7`), More: true}}, "", false},
		{[]Message{{Body: []byte(`[1]`), More: true}}, "", false}, // and the daemon is gone
	} {
		a, b := pair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer b.Close()
			for page, m := range c.answers {
				q, err := b.Recv()
				if err != nil || q.Kind != KindStatus || q.What != "conn" || int(q.Page) != page {
					t.Errorf("page %d is asked for by %+v, %v", page, q, err)
					return
				}
				m.ID, m.Kind, m.Answer = q.ID, q.Kind, true
				if err := b.Send(&m); err != nil {
					t.Error(err)
				}
			}
		}()
		got, err := a.Ask(Message{Kind: KindStatus, What: "conn"})
		if string(got) != c.want || (err == nil) != (c.want != "") || errors.As(err, new(*Error)) != c.refused {
			t.Errorf("%d answers: %s, %v; want %q", len(c.answers), got, err, c.want)
		}
		<-done
	}
}

// A daemon that takes the request and never answers is left when the context ends.
func TestAskGivesUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, 0o600)
	must(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := Ask(ctx, path, Message{Kind: KindStatus})
		over <- err
	}()
	c, err := l.Accept()
	must(t, err)
	defer c.Close()
	if _, err := c.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-over; err == nil {
		t.Error("an answer, of nobody")
	}
}
