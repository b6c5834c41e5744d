/* What notifications tell (DSM clause 2.3). Nothing that another rank sends can make this one do what it does not
 * expect. */
#include "rank.h"

void heed(int rank, uint32_t note)
{
	int kind = (int)(note >> NOTE_SHIFT), number = (int)(note & NOTE_NUMBER);
	switch (kind) {
	case NOTE_ARRIVED:
	case NOTE_FINISHED:
		if (know.finished[rank] || know.arrived[rank] > know.barriers || number > CHANGE_WORDS)
			broken(rank, "it arrived where it does not belong");
		know.arrived[rank]++;
		know.finished[rank] = kind == NOTE_FINISHED;
		return;
	case NOTE_ASKED:
		if (number >= conf.locks || know.asked[number] != 0)
			break;
		know.asked[number] = (uint8_t)(rank + 1);
		return;
	case NOTE_GRANTED:
		if (number >= conf.locks || know.granted != 0)
			break;
		know.granted = number + 1;
		return;
	case NOTE_ENDING:
		told(rank);
	}
	broken(rank, "it sent notification %#x", note);
}

/* Takes the notifications that are there. */
void heed_all(void)
{
	int from;
	uint32_t note;
	while (net_next(&from, &note, -1, false))
		heed(from, note);
}
