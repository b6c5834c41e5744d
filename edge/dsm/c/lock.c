/* Locks (DSM clause 3.6). The tail of a lock is 1 + the rank that is last in its queue, in the lowest 8 bits; when it
 * is free these are zero, and the others are a number that no other unlock has used, or zero before the first. The hash
 * beside vector and news is of that number and of both, so that they can be read at once with the swap of the tail: a
 * fence would cost a round trip. */
#include "rank.h"

#define HOLDER ((uint64_t)0xff)

static void check_lock(const char *what, int number, bool held)
{
	if (number < 0 || number >= conf.locks)
		fail("%s(%d): choose 0 to %d, or set dsm_config.locks", what, number, conf.locks - 1);
	if (know.held[number] != held)
		fail("%s(%d): this rank %s the lock", what, number, held ? "does not have" : "has");
	know.held[number] = !held;
}

/* Reads hash, vector and news of a lock, and waits for all that was posted. */
static void read_vector(int home, size_t at)
{
	net_read(home, CONTROL, lay.got, at + 8, 8 + vector_news());
	net_wait();
}

/* The hash of the tail of a free lock, and of its vector and news, which are at an offset of the control region. */
static uint64_t hash(uint64_t tail, size_t vector)
{
	uint64_t h = mix(tail);
	for (size_t at = 0; at < vector_news(); at += 8)
		h = mix(h ^ load(vector + at));
	return h;
}

/* Waits for a lock behind another rank, which grants it. Vector and news are in lay.granted then. */
static void await(int number, int last)
{
	int from;
	uint32_t note;
	stats.waits++;
	net_write(last, CONTROL, lay.out, lay.asked + 8 * (size_t)conf.rank, 8, NOTE(NOTE_ASKED, number));
	net_owes();
	while (know.granted != number + 1) {
		net_next(&from, &note, last, true);
		heed(from, note);
	}
	know.granted = 0;
}

void dsm_lock(int number)
{
	check_lock("dsm_lock", number, false);
	if (conf.ranks == 1)
		return;
	uint64_t start = now_ns(), me = (uint64_t)conf.rank + 1;
	int home;
	size_t at = lock_place(number, &home), vector = lay.got + 8;
	net_swap(home, at, me);
	read_vector(home, at);
	uint64_t tail = know.was, last = tail & HOLDER;
	if (last > (uint64_t)conf.ranks || last == me)
		broken(home, "lock %d is held by rank %d", number, (int)last - 1);
	if (last != 0) {
		await(number, (int)last - 1);
		vector = lay.granted;
	} else if (tail != 0 && load(lay.got) != hash(tail, vector)) {
		read_vector(home, at); /* the first was read before the swap */
		if (load(lay.got) != hash(tail, vector))
			broken(home, "lock %d is free, and its vector or news are of another time", number);
	}
	stats.locks++;
	stats.lock_ns += now_ns() - start;
	acquire(vector, false);
}

/* Makes what is known here ready to be written elsewhere: the vector, the news, which are this rank and the end of its
 * log, and in front of both their hash for a tail. */
static void publish(uint64_t tail)
{
	net_free();
	size_t at = lay.out + 8;
	for (int q = 0; q < conf.ranks; q++, at += 8)
		store(at, know.known[q]);
	store(at, (uint64_t)conf.rank);
	uint64_t end = know.known[conf.rank];
	for (uint64_t i = end - NEWS_WORDS; i != end; i++) /* of a shorter log the first are of no use */
		store(at += 8, *word(lay.ring + 8 * (size_t)(i % lay.log)));
	store(lay.out, hash(tail, lay.out + 8));
}

/* Gives the lock back to its home, behind all changes that are not waited for. False: another rank is about to ask, and
 * learns of them by itself; they are in place. */
static bool give_back(int home, size_t at, uint64_t tail)
{
	uint64_t me = (uint64_t)conf.rank + 1;
	net_write(home, CONTROL, lay.out, at + 8, 8 + vector_news(), 0);
	net_compare_swap(home, at, me, tail);
	net_answer();
	if (know.was != me)
		net_wait();
	know.wrote = 0;
	return know.was == me;
}

void dsm_unlock(int number)
{
	check_lock("dsm_unlock", number, true);
	if (conf.ranks == 1)
		return;
	carry();
	uint64_t start = now_ns();
	heed_all();
	int home;
	size_t at = lock_place(number, &home);
	if ((know.asked[number] != 0 && know.wrote != 0) || (know.wrote & ~((uint64_t)1 << home)) != 0)
		net_wait(); /* else what says that the lock is free is fenced behind all changes */
	uint64_t tail = (++know.unlocks * MAX_RANKS + (uint64_t)conf.rank) << 8;
	publish(tail);
	net_owes();
	if (know.asked[number] != 0 || !give_back(home, at, tail)) {
		int from;
		uint32_t note;
		while (know.asked[number] == 0) { /* by any rank */
			net_next(&from, &note, -1, true);
			heed(from, note);
		}
		int to = know.asked[number] - 1;
		know.asked[number] = 0;
		net_write(to, CONTROL, lay.out + 8, lay.granted, vector_news(), NOTE(NOTE_GRANTED, number));
		net_owes();
	}
	stats.lock_ns += now_ns() - start;
}
