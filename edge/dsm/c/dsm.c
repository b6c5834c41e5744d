/* The beginning and the end of a rank's part in a run. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "net.h"

static pid_t begun; /* process that is in a run; 0: none, or it is over */

/* A process of the run that ends without dsm_exit has failed. A child of fork is none. */
static void unfinished(void)
{
	if (begun != getpid())
		return;
	fflush(NULL);
	fail("its program ended without dsm_exit");
}

void begin(const dsm_config *config, bool show)
{
	static bool once;
	if (once)
		fail("dsm_init: a process can be in one run");
	once = true;
	config_complete(&conf, config);
	tell_begin();
	layout_make();
	int memfd = pages_make();
	if (conf.ranks > 1) {
		join(memfd);
		close(memfd);
		watch();
		if (show)
			show_memory();
	}
	begun = getpid();
	atexit(unfinished);
	dsm_reset_stats();
}

/* From here on the program sees the shared bytes. */
void show_memory(void)
{
	fault_handle();
	pages_show();
}

void dsm_init(const dsm_config *config)
{
	begin(config, true);
}

void dsm_exit(void)
{
	if (begun == 0)
		fail("dsm_exit: this process is in no run; call dsm_init first, and dsm_exit once");
	for (int l = 0; l < conf.locks; l++)
		if (know.held[l])
			fail("dsm_exit: rank %d has lock %d; unlock it first", conf.rank, l);
	if (conf.ranks > 1) {
		meet(NOTE_FINISHED);
		fault_forget();
		leave();
	}
	tell_stats(true);
	begun = 0;
	pages_free();
}

int dsm_rank(void)
{
	return conf.rank;
}

int dsm_ranks(void)
{
	return conf.ranks;
}

size_t dsm_share(size_t n, int rank)
{
	return (size_t)rank * n / (size_t)conf.ranks;
}
