package kit

import (
	"context"
	"fmt"

	"multiedge/edge"
)

// failure is what ends a piece of work that failed.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// Try runs f and returns the error with which Check ended it, if one did. Check must be called on the goroutine of f;
// on another, an error ends the program, as a panic does.
func Try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ours := r.(failure)
			if !ours {
				panic(r)
			}
			err = failed.error
		}
	}()
	f()
	return nil
}

// Check ends the work that Try runs, unless err is nil.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns v, or ends the work that Try runs.
func Get[T any](v T, err error) T {
	Check(err)
	return v
}

// Get2 is Get for two values.
func Get2[A, B any](a A, b B, err error) (A, B) {
	Check(err)
	return a, b
}

// Fail ends the work that Try runs with an error in those words.
func Fail(format string, args ...any) { Check(fmt.Errorf(format, args...)) }

// Checkf is Check whose error says first what was being done.
func Checkf(err error, doing string, args ...any) {
	if err != nil {
		Fail("%s: %w", fmt.Sprintf(doing, args...), err)
	}
}

// Outcome is Try for work that has a result.
func Outcome[T any](f func() T) (v T, err error) {
	err = Try(func() { v = f() })
	return v, err
}

// Doing runs f. If Check ends it, the error says first what was being done.
func Doing(f func(), format string, args ...any) {
	if err := Try(f); err != nil {
		Fail("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// Do posts an operation on a connection and waits for its end, and ends the work that Try runs if it fails.
func Do(ctx context.Context, c *edge.Conn, w *edge.Work) {
	op := Get(c.Post(ctx, w))
	Check(op.Wait(ctx))
}
