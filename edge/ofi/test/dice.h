/* Numbers that a seed decides (splitmix64). */
#include <stdbool.h>
#include <stdint.h>

static uint64_t state; /* begins with the seed */

static uint64_t any(void)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
	return any() % n;
}

static bool once_in(uint64_t n)
{
	return below(n) == 0;
}
