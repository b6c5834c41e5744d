/* A log of 16 words that is written over while another rank reads it: on two ranks over the network of chaos.c, whose
 * reads of logs take as long as CHAOS_SLOW says. What was changed must be seen all the same. */
#include "test.h"

/* 18 records of 3 words follow the first: three times round the log, so that others lie just where it was. */
enum { ROUNDS = 12, RECORDS = 18, PAGES = 2 * RECORDS + 4, TRIES = 4 };

int main(void)
{
	dsm_config c = { .size = sizeof c, .memory = 1 << 20, .locks = 4, .log = 16 };
	dsm_init(&c);
	volatile uint64_t *a = dsm_alloc(PAGES * 512, 8, DSM_TURNS); /* odd pages are at home at rank 1 */
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		CHECK(a[0] == i - 1, "round %llu: %llu", (unsigned long long)i, (unsigned long long)a[0]); /* a copy is here */
		dsm_barrier();
		if (dsm_rank() == 0) {
			dsm_lock(0);
			a[0] = a[512] = i;
			dsm_unlock(0);
			for (int p = 4; p < PAGES; p += 2) { /* a record each, of another page */
				dsm_lock(2);
				a[512 * p] = i;
				dsm_unlock(2);
			}
		} else {
			for (int k = 0; k < TRIES; k++) {
				dsm_lock(0);
				CHECK(a[512] != i || a[0] == i, "round %llu: %llu", (unsigned long long)i, (unsigned long long)a[0]);
				dsm_unlock(0);
			}
		}
		dsm_barrier();
	}
	dsm_exit();
	return 0;
}
