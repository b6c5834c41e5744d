/* A fork of a process with registered memory, where its child cannot have copies. */
#ifndef EDGE_VERBS_SCARCE_H
#define EDGE_VERBS_SCARCE_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "ends.h"

/* A child for whose copies there is no memory, or no descriptor, does not begin. */
static void scarce(struct end *e, int resource, rlim_t most)
{
	const size_t size = 32 << 20;
	struct rlimit had, few;
	int status;
	char *p = malloc(size);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, p, size, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL && getrlimit(resource, &had) == 0, "ibv_reg_mr");
	p[0] = 'p';
	few = had;
	few.rlim_cur = most;
	CHECK(setrlimit(resource, &few) == 0, "setrlimit");
	pid_t pid = fork();
	if (pid == 0) {
		p[0] = 'c';
		_exit(0);
	}
	setrlimit(resource, &had);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && p[0] == 'p', "the child has the parent's memory");
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a child without copies: status %#x", status);
	CHECK(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
	free(p);
}

#endif
