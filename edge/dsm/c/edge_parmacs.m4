divert(-1)
# PARMACS over libedge-dsm: m4 edge_parmacs.m4 program.C >program.c, then cc program.c -ledge-dsm. Processes are ranks
# of a run (EDGE_DSM); docs/DSM.md says how programs are built and started. A macro that others use instead of a
# statement has braces, as those of other implementations have. An index after the name of a lock or flag takes it from
# an array.

define(INCLUDES_, `
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <edge_dsm.h>
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
')
define(MAIN_ENV, `INCLUDES_')
define(EXTERN_ENV, `INCLUDES_')
define(MAIN_INITENV, `{dsm_parmacs_init();}')
define(MAIN_END, `{dsm_parmacs_end();}')
define(NEWPROC, `')

# CREATE(f) makes one process, in a loop over all but the caller, which calls f itself; CREATE(f, n) has n run f.
define(CREATE, `ifelse(`$2', `', `{if (dsm_parmacs_create(0)) { $1(); dsm_parmacs_wait(); }}',
	`{dsm_parmacs_create($2); $1();}')')
define(WAIT_FOR_END, `{dsm_parmacs_wait();}')

define(G_MALLOC, `dsm_parmacs_malloc($1)ifelse(`$2', `', `;')')
define(NU_MALLOC, `dsm_parmacs_malloc($1)ifelse(`$3', `', `;')')
define(G_FREE, `{(void)($1);}')
define(CLOCK, `{($1) = dsm_parmacs_clock();}')

define(LOCKDEC, `int $1;')
define(LOCKINIT, `{($1) = dsm_parmacs_lock();}')
define(LOCK, `{dsm_lock($1);}')
define(UNLOCK, `{dsm_unlock($1);}')
define(ALOCKDEC, `int $1[$2];')
define(ALOCKINIT, `{for (int i_ = 0; i_ < ($2); i_++) ($1)[i_] = dsm_parmacs_lock();}')
define(ALOCK, `{dsm_lock(($1)[$2]);}')
define(AULOCK, `{dsm_unlock(($1)[$2]);}')
define(AUNLOCK, `{dsm_unlock(($1)[$2]);}')
define(AGETL, `(($1)[$2])')

define(BARDEC, `int $1;')
define(BARINIT, `{($1) = 0;}')
define(BARRIER, `{dsm_parmacs_barrier(ifelse(`$2', `', `0', `$2'));}')

define(AT_, `($1)ifelse(`$2', `', `', `[$2]')')
define(PAUSEDEC, `struct { int lock; volatile int set; } $1 ifelse(`$2', `', `', `[$2]');')
define(PAUSEINIT, `ifelse(`$2', `', `{($1).lock = dsm_parmacs_lock(); ($1).set = 0;}',
	`{for (int i_ = 0; i_ < ($2); i_++) { ($1)[i_].lock = dsm_parmacs_lock(); ($1)[i_].set = 0; }}')')
define(SETPAUSE, `{dsm_lock(AT_(`$1', `$2').lock); AT_(`$1', `$2').set = 1; dsm_unlock(AT_(`$1', `$2').lock);}')
define(CLEARPAUSE, `{dsm_lock(AT_(`$1', `$2').lock); AT_(`$1', `$2').set = 0; dsm_unlock(AT_(`$1', `$2').lock);}')
define(WAITPAUSE, `{dsm_parmacs_await(AT_(`$1', `$2').lock, &AT_(`$1', `$2').set);}')

# Whoever waits for a condition looks at it again and again.
define(CONDVARDEC, `int $1;')
define(CONDVARINIT, `{($1) = 0;}')
define(CONDVARWAIT, `{dsm_unlock($2); dsm_parmacs_nap(); dsm_lock($2);}')
define(CONDVARSIGNAL, `{;}')
define(CONDVARBCAST, `{;}')

# What Splash-3 has beyond these.
define(SPLASH3_ROI_BEGIN, `')
define(SPLASH3_ROI_END, `')
define(RELEASE_FENCE, `')
define(ACQUIRE_FENCE, `')
define(FULL_FENCE, `')

divert(0)dnl
