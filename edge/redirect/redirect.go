// Package redirect sends what a peer writes into part of an export to other registered memory (VMMC §4.1).
package redirect

import (
	"context"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Redirect(g *edge.Grant, off, n int, to *edge.Region, toOff int) (inner.Redirection, error)
})

// Span is bytes Off to Off+Len of a redirection.
type Span struct{ Off, Len int }

// Redirection sends what a peer writes into part of an export to other registered memory. The peer knows nothing of it.
// It ends when every byte has been redirected, by End or Take, or with the export.
type Redirection struct{ r inner.Redirection }

// Begin puts data that arrives from now on for bytes off to off+n of the export into region to instead, from its byte
// toOff on. Data that arrived before stays where it is; End and Take tell which bytes those are. Until the redirection
// has ended, these bytes of to belong to it, and it takes a place among the operations in flight. A connection has at
// most 64 redirections, and none may overlap. edge.ErrAgain means that the queue is full, edge.ErrVersion that the
// daemon has no redirection.
func Begin(g *edge.Grant, off, n int, to *edge.Region, toOff int) (*Redirection, error) {
	r, err := core.Redirect(g, off, n, to, toOff)
	if err != nil {
		return nil, err
	}
	return &Redirection{r}, nil
}

// Done reports whether the redirection has ended.
func (r *Redirection) Done() bool { return r.r.Done() }

// Wait waits until every byte has been redirected, or the redirection has ended otherwise. It returns the error of ctx
// when that ends first, and why it ended: edge.ErrKey when the export was revoked, edge.ErrExists when another
// redirection had part of it, the reason of the connection's end.
func (r *Redirection) Wait(ctx context.Context) error { return r.r.Wait(ctx) }

// End ends the redirection, unless it has ended, and returns which of its bytes were redirected, in order. These bytes
// are in the other memory, all others in the export. If the error is that of ctx, the redirection has not ended. With
// any other error, those of Wait, the spans are valid.
func (r *Redirection) End(ctx context.Context) ([]Span, error) {
	err := r.r.End(ctx)
	if !r.r.Settled() {
		return nil, err
	}
	var out []Span
	for _, s := range r.r.Spans() {
		if s.Lo < s.Hi {
			out = append(out, Span{s.Lo, s.Hi - s.Lo})
		}
	}
	return out, err
}

// Take is like End, but also copies the bytes that were not redirected. So all bytes are in the other memory
// afterwards, as the export would have them.
func (r *Redirection) Take(ctx context.Context) ([]Span, error) {
	spans, err := r.End(ctx)
	if !r.r.Settled() {
		return nil, err
	}
	if cerr := r.r.CopyRest(); cerr != nil {
		return spans, cerr
	}
	return spans, err
}
