// Package queue has a FIFO that reuses its memory.
package queue

// Queue is a FIFO that reuses its memory.
type Queue[T any] struct {
	Items []T
	head  int
}

func (q *Queue[T]) Len() int { return len(q.Items) - q.head }

func (q *Queue[T]) Push(v T) { q.Items = append(q.Items, v) }

func (q *Queue[T]) Front() *T {
	if q.head == len(q.Items) {
		return nil
	}
	return &q.Items[q.head]
}

func (q *Queue[T]) Pop() {
	var zero T
	q.Items[q.head] = zero
	q.head++
	if q.head == len(q.Items) {
		q.Items, q.head = q.Items[:0], 0
	} else if q.head >= 64 && q.head*2 >= len(q.Items) {
		q.Items = q.Items[:copy(q.Items, q.Items[q.head:])]
		q.head = 0
	}
}

// Remove deletes the elements that drop says.
func (q *Queue[T]) Remove(drop func(T) bool) {
	kept := q.Items[:0]
	for _, v := range q.Items[q.head:] {
		if !drop(v) {
			kept = append(kept, v)
		}
	}
	clear(q.Items[len(kept):])
	q.Items, q.head = kept, 0
}
