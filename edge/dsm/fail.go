package dsm

import (
	"errors"
	"fmt"

	"multiedge/edge"
)

// failure is the panic that ends the function that Run called.
type failure struct{ err error }

func fail(err error) { panic(failure{err}) }

// mistake fails for a wrong use of the package.
func mistake(format string, args ...any) { fail(invalid(format, args...)) }

// ErrRank is the error of Run on every other rank when a rank fails or is lost. Its text says which, and why if that is
// known.
var ErrRank = errors.New("dsm: a rank was lost")

// lost is the error of a rank that saw another one end.
type lost struct {
	rank int
	node string
	why  error
}

func (e *lost) Error() string {
	return fmt.Sprintf("dsm: rank %d on %s was lost: %v", e.rank, e.node, e.why)
}

func (e *lost) Unwrap() []error { return []error{ErrRank, e.why} }

// told is the error of a rank that another one told why a third, or itself, ended.
type told struct{ text string }

func (e *told) Error() string { return e.text }
func (e *told) Is(target error) bool {
	return target == ErrRank
}

// broken fails for what no rank sends that follows the protocol.
func broken(rank int, format string, args ...any) {
	fail(fmt.Errorf("%w: rank %d does not keep to the protocol: %s; all ranks must run the same program",
		edge.ErrVersion, rank, fmt.Sprintf(format, args...)))
}

// protect runs f and returns the error with which it failed.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ours := r.(failure)
			if !ours {
				panic(r)
			}
			err = failed.err
		}
	}()
	return f()
}
