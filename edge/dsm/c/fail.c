/* How a rank ends when the run cannot go on. The program's thread may come here from the handler of faults, and the
 * thread that watches at any time: so nothing is allocated, stdio is not used, and the first of them alone goes on. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rank.h"

void (*farewell)(const char *text);

/* Says why, to people and to the other ranks if tell, and ends the process. */
static NORETURN void end(const char *text, bool tell)
{
	static int ending;
	while (__atomic_exchange_n(&ending, 1, __ATOMIC_SEQ_CST) != 0)
		pause(); /* another thread ends the process */
	char line[MAX_TEXT + 2];
	int n = snprintf(line, sizeof line, "%s\n", text);
	if (write(STDERR_FILENO, line, (size_t)n) < 0) {
		/* nobody listens */
	}
	if (tell && farewell != NULL)
		farewell(text);
	_exit(DSM_FAILED);
}

void fail(const char *format, ...)
{
	char text[MAX_TEXT + 1], all[MAX_TEXT + 1];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	snprintf(all, sizeof all, "dsm: rank %d%s%s failed: %.140s", conf.rank, conf.self[0] == 0 ? "" : " on ", conf.self,
	         text);
	end(all, true);
}

void lost(const char *format, ...)
{
	char text[MAX_TEXT + 1];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	end(text, true);
}

/* What a rank that fails wrote about it into the control region; NULL: nothing. */
char *last_words(int rank, char text[MAX_TEXT + 1])
{
	size_t at = lay.ending + (16 + MAX_TEXT) * (size_t)rank;
	uint64_t n = load(at);
	if (n == 0)
		return NULL;
	n = n < MAX_TEXT ? n : MAX_TEXT;
	memcpy(text, mem.ctl + at + 16, n);
	text[n] = 0;
	return text;
}

void told(int rank)
{
	char text[MAX_TEXT + 1];
	end(last_words(rank, text) != NULL ? text : "dsm: another rank failed and did not say why", false);
}

void broken(int rank, const char *format, ...)
{
	char text[MAX_TEXT + 1];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fail("rank %d does not keep to the protocol: %.100s; all ranks must run the same program", rank, text);
}
