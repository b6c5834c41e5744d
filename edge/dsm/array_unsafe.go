package dsm

import "unsafe"

// Read returns elements lo up to hi, which may be read until this rank's next Lock or Barrier. What is missing is
// fetched at once.
func (a Array[T]) Read(lo, hi int) []T { return a.view(lo, hi, clean) }

// Write returns elements lo up to hi, which may be read and written until this rank's next Unlock or Barrier.
func (a Array[T]) Write(lo, hi int) []T { return a.view(lo, hi, dirty) }

// Prefetch begins to fetch what is missing of elements lo up to hi, and returns at once. The next Read or Write that
// finds something missing waits for all of it.
func (a Array[T]) Prefetch(lo, hi int) {
	var t T
	if a.check(lo, hi); lo < hi {
		a.m.prefetch(a.off+lo*int(unsafe.Sizeof(t)), a.off+hi*int(unsafe.Sizeof(t)))
	}
}

// Follow asks that from the Barrier after the next on, what other ranks have changed of the pages of elements lo up
// to hi since their last Unlock or Barrier comes with each Barrier, instead of being fetched after it. It is for
// elements that this rank reads after most barriers and others write, such as the rows beside its own. It changes no
// result. A page is fetched as without Follow if several ranks changed it, if its elements are not of 8 bytes or a
// multiple of that, or if one rank has more than 16 KiB to bring.
func (a Array[T]) Follow(lo, hi int) {
	var t T
	if a.check(lo, hi); lo < hi && a.m.net != nil {
		a.m.follow.begin(a.off+lo*int(unsafe.Sizeof(t)), a.off+hi*int(unsafe.Sizeof(t)))
	}
}

// Own is Write for a rank that writes every element from lo up to hi before its next Unlock or Barrier, while no other
// rank writes any of them: they are neither fetched nor compared. What they hold at first is undefined.
func (a Array[T]) Own(lo, hi int) []T {
	var t T
	a.check(lo, hi)
	if lo < hi {
		end := a.off + hi*int(unsafe.Sizeof(t))
		if hi == a.n {
			end = (end + pageSize - 1) / pageSize * pageSize // nothing else is on the last page
		}
		a.m.own(a.off+lo*int(unsafe.Sizeof(t)), end)
	}
	return a.view(lo, hi, dirty)
}

// At returns element i.
func (a Array[T]) At(i int) T { return a.view(i, i+1, clean)[0] }

// Set stores v in element i.
func (a Array[T]) Set(i int, v T) { a.view(i, i+1, dirty)[0] = v }

func (a Array[T]) check(lo, hi int) {
	if lo < 0 || hi > a.n || lo > hi {
		mistake("elements %d to %d of an Array of %d", lo, hi, a.n)
	}
}

// view returns elements whose pages have at least the state want.
func (a Array[T]) view(lo, hi int, want state) []T {
	var t T
	a.check(lo, hi)
	if lo == hi {
		return nil
	}
	from, to := a.off+lo*int(unsafe.Sizeof(t)), a.off+hi*int(unsafe.Sizeof(t))
	m := a.m
	last := (to - 1) / pageSize
	for p := from / pageSize; p <= last; p++ {
		if m.state[p] < want {
			m.need(from, to, want)
			break
		}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&m.mem[from])), hi-lo)
}

// word is the 8 bytes at off, to be used by atomic instructions.
func word(b []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&b[off : off+8][0])) }

// addressOf is where memory begins.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
