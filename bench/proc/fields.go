package proc

import "reflect"

// Since returns what now has more than then, field by field: of structs with exported fields, arrays, uint64 and
// float64. A count that fell is 0: a thread that ended takes its own along. Everything else is now's.
func Since[T any](now, then T) T {
	return merged(now, then, func(a, b uint64) uint64 { return a - min(a, b) },
		func(a, b float64) float64 { return max(0, a-b) })
}

// Sum adds up likewise.
func Sum[T any](first T, more ...T) T {
	for _, m := range more {
		first = merged(first, m, func(a, b uint64) uint64 { return a + b }, func(a, b float64) float64 { return a + b })
	}
	return first
}

func merged[T any](a, b T, count func(a, b uint64) uint64, size func(a, b float64) float64) T {
	var merge func(a, b reflect.Value)
	merge = func(a, b reflect.Value) {
		switch a.Kind() {
		case reflect.Struct:
			for i := range a.NumField() {
				merge(a.Field(i), b.Field(i))
			}
		case reflect.Array:
			for i := range a.Len() {
				merge(a.Index(i), b.Index(i))
			}
		case reflect.Uint64:
			a.SetUint(count(a.Uint(), b.Uint()))
		case reflect.Float64:
			a.SetFloat(size(a.Float(), b.Float()))
		}
	}
	merge(reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem())
	return a
}
