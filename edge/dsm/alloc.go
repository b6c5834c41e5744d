package dsm

import (
	"fmt"
	"reflect"
)

// Homes chooses the rank at which a page of an allocation is at home: there accesses are local, and changes of others
// are carried there. It is called with the page's number within the allocation, how many that has, and the number of
// ranks, and must return the same on all of them.
type Homes func(page, pages, ranks int) int

// Blocks gives each rank an equal part, in order: what Share returns is mostly at home.
func Blocks(page, pages, ranks int) int { return page * ranks / pages }

// Turns deals pages out, one to each rank in turn.
func Turns(page, _, ranks int) int { return page % ranks }

// At puts all pages at one rank.
func At(rank int) Homes { return func(int, int, int) int { return rank } }

// Array is n elements of shared memory, zero at first. It is a small value that may be copied.
type Array[T any] struct {
	m   *Memory
	off int // bytes
	n   int
}

// Len returns the number of elements.
func (a Array[T]) Len() int { return a.n }

// Alloc returns n elements of shared memory, which begin at a page. All ranks must make the same calls in the same
// order; the next barrier finds out if they do not. T must hold no pointers, nor anything that contains them.
func Alloc[T any](m *Memory, n int, homes Homes) Array[T] {
	t := reflect.TypeFor[T]()
	if kind := pointer(t); kind != "" {
		mistake("Alloc[%v]: %s is an address, which means nothing to other ranks", t, kind)
	}
	size := int(t.Size())
	if n < 0 || size == 0 || n > len(m.mem)/size {
		mistake("Alloc[%v]: %d elements do not fit into %d bytes of memory; set Config.Size", t, n, len(m.mem))
	}
	return Array[T]{m, m.alloc(n*size, size, t.String(), homes), n}
}

// pointer returns what in a type is an address, empty if nothing is.
func pointer(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Array:
		return pointer(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if kind := pointer(t.Field(i).Type); kind != "" {
				return kind
			}
		}
		return ""
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64,
		reflect.Complex64, reflect.Complex128:
		return ""
	}
	return t.String()
}

// alloc returns where bytes of memory begin, for elements of some size.
func (m *Memory) alloc(bytes, element int, kind string, homes Homes) (off int) {
	m.settle()
	off = m.used
	pages := (bytes + pageSize - 1) / pageSize
	if pages*pageSize > len(m.mem)-off {
		mistake("Alloc: %d bytes are left of %d, and %d are wanted; set Config.Size", len(m.mem)-off, len(m.mem), bytes)
	}
	first := off / pageSize
	for i := range pages {
		h := homes(i, pages, m.ranks)
		if h < 0 || h >= m.ranks {
			mistake("Alloc: page %d is to be at home at rank %d of %d", i, h, m.ranks)
		}
		m.home[first+i], m.grain[first+i] = uint8(h), grainOf(element)
		m.digest = mix(m.digest ^ uint64(h))
		if m.guard != nil {
			m.guard.protect(first+i, first+i+1, m.state[first+i])
		}
	}
	m.digest = mix(m.digest ^ uint64(bytes)<<16 ^ uint64(element))
	m.used += pages * pageSize
	if m.net == nil {
		m.model.Alloc(off, m.home[first:first+pages])
	}
	m.allocs = append(m.allocs, allocation{off, bytes, element, kind})
	return off
}

// grainOf is the largest power of two up to 8 that divides the size of an element.
func grainOf(element int) uint8 {
	g := 8
	for element%g != 0 {
		g /= 2
	}
	return uint8(g)
}

// whose says what is at a place of the memory.
func (m *Memory) whose(off int) string {
	for i, a := range m.allocs {
		if off >= a.off && off < a.off+a.size {
			return fmt.Sprintf("element %d of allocation %d, of %s", (off-a.off)/a.element, i, a.kind)
		}
	}
	return fmt.Sprintf("byte %d, which is not allocated", off)
}

// mix is a hash of a word.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
