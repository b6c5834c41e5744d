package regmem

import (
	"errors"
	"math"
	"os"
	"sync"
	"testing"
)

func TestQuota(t *testing.T) {
	page := os.Getpagesize()
	q := NewQuota(10*page, 3)
	if err := q.Reserve(1); err != nil { // a byte costs a page
		t.Fatal(err)
	}
	if err := q.Reserve(8*page - 1); err != nil {
		t.Fatal(err)
	}
	var qe *QuotaError
	if err := q.Reserve(page + 1); !errors.Is(err, ErrQuota) || !errors.As(err, &qe) ||
		*qe != (QuotaError{"pinned bytes", 2 * page, 9 * page, 10 * page}) {
		t.Errorf("too many bytes: %v", err)
	}
	if err := q.Reserve(page); err != nil {
		t.Fatalf("exactly the limit: %v", err)
	}
	if err := q.Reserve(1); !errors.As(err, &qe) || *qe != (QuotaError{"regions", 1, 3, 3}) {
		t.Errorf("too many regions: %v", err)
	}
	q.Release(8*page - 1)
	if bytes, regions := q.Used(); bytes != 2*page || regions != 2 {
		t.Errorf("%d bytes in %d regions, want %d in 2", bytes, regions, 2*page)
	}
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt} {
		if err := q.Reserve(size); !errors.Is(err, ErrSize) {
			t.Errorf("Reserve(%d): %v, want ErrSize", size, err)
		}
	}
	if err := new(Quota).Reserve(1); !errors.Is(err, ErrQuota) {
		t.Errorf("the zero Quota: %v, want ErrQuota", err)
	}
	big := NewQuota(math.MaxInt, math.MaxInt)
	if err := errors.Join(big.Reserve(1<<62), big.Reserve(1)); err != nil {
		t.Errorf("no limit: %v", err)
	}
	if err := big.Reserve(1 << 62); !errors.Is(err, ErrQuota) {
		t.Errorf("more than an int: %v, want ErrQuota", err)
	}
}

func TestQuotaReleaseTooMuch(t *testing.T) {
	for _, size := range []int{0, -4096, 1 << 20} {
		q := NewQuota(1<<20, 2)
		if err := q.Reserve(4096); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Release(%d) of 4096 reserved did not panic", size)
				}
			}()
			q.Release(size)
		}()
		q.Release(4096) // the lock is free and nothing changed
	}
}

func TestQuotaConcurrent(t *testing.T) {
	const page = 1 << 16 // a multiple of any page size
	q := NewQuota(3*page, 100)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if q.Reserve(page) == nil {
					if bytes, _ := q.Used(); bytes > 3*page {
						t.Errorf("%d bytes reserved", bytes)
					}
					q.Release(page)
				}
			}
		})
	}
	wg.Wait()
	if bytes, regions := q.Used(); bytes != 0 || regions != 0 {
		t.Errorf("%d bytes in %d regions left", bytes, regions)
	}
}
