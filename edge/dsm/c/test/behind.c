/* A change whose write is posted behind as many others as may be in flight: posting it waits for those, and not for it.
 * On three ranks over the network of chaos.c, with CHAOS_LATE. The lock is at home at rank 1, the changes at rank 2, so
 * no fence is between them: dsm_unlock has to wait. */
#include "test.h"

enum { LOCK = 1, CHANGES = 1025, ROUNDS = 2 };

void outside(void);

int main(void)
{
	dsm_config c = { .size = sizeof c, .memory = 1 << 20, .locks = 4 };
	dsm_init(&c);
	volatile uint64_t *a = dsm_alloc(2 * CHANGES, 8, 2);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (dsm_rank() == 0)
			dsm_lock(LOCK);
		dsm_barrier();
		if (dsm_rank() == 0) {
			for (int k = 0; k < CHANGES; k++) /* each a run of its own */
				a[2 * k] = i;
			dsm_unlock(LOCK);
		} else if (dsm_rank() == 1) {
			dsm_lock(LOCK);
			for (int k = 0; k < CHANGES; k++)
				CHECK(a[2 * k] == i, "round %llu, change %d: %llu", (unsigned long long)i, k,
				      (unsigned long long)a[2 * k]);
			dsm_unlock(LOCK);
		}
		outside(); /* rank 0 does nothing by which its changes would take effect */
		dsm_barrier();
	}
	dsm_exit();
	return 0;
}
