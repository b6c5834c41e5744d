/*
 * The provider against attack.c, which speaks its language wrongly.
 *
 * hostile serve FILE N    takes a good connection, makes FILE.ready, and then takes N bad ones; each ends by itself
 *                         alone, with an event and an error for its buffer, and the good one still works
 * hostile good FILE       the good one
 * hostile dial FILE N     connects N times to who answers wrongly, and gets an error each time
 */
#include "common.h"

enum { KEY = 77, MEMORY = 200000, LIMIT = 60 };

static char board[MEMORY], quiet[MEMORY];

static void serve_bad(int i)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	size_t n;
	char buf[16];
	struct fi_info *of = request("attack");
	struct fid_ep *ep = endpoint(of);
	CHECK(fi_recv(ep, buf, sizeof buf, NULL, 0, buf)); /* before the attack can end the endpoint */
	CHECK(fi_accept(ep, "hi", 2));
	fi_freeinfo(of);
	WANT(event(&fid, &cm, &n) == FI_CONNECTED && fid == &ep->fid);
	WANT(event(&fid, &cm, &n) == FI_SHUTDOWN && fid == &ep->fid);
	if (outcome(buf) >= 0)
		fail(__LINE__, "the buffer came back without an error", -i);
	CHECK(fi_close(&ep->fid));
}

static void serve_all(const char *file, int n)
{
	struct fid_mr *mr;
	char buf[16], ready[300];
	CHECK(fi_mr_reg(domain, board, MEMORY, FI_REMOTE_READ, 0, KEY, 0, &mr, NULL));
	serve(file);
	struct fid_ep *good = take(request("good"), "");
	WANT(good != NULL);
	snprintf(ready, sizeof ready, "%s.ready", file);
	FILE *f = fopen(ready, "w");
	WANT(f != NULL && fclose(f) == 0);
	for (int i = 0; i < n; i++) {
		serve_bad(i);
		CHECK(fi_recv(good, buf, sizeof buf, NULL, 0, buf));
		CHECK(fi_send(good, "go", 3, NULL, 0, "go"));
		WANT(outcome("go") == 0);
		WANT(outcome(buf) == 0 && strcmp(buf, "on") == 0);
	}
	CHECK(fi_close(&good->fid));
	CHECK(fi_close(&mr->fid));
	WANT(memcmp(board, quiet, MEMORY) == 0);
}

static void be_good(const char *file)
{
	struct fid_ep *ep;
	char to[64], buf[16];
	address_of(file, to);
	WANT(dial(to, "good", "", &ep) == FI_CONNECTED);
	for (;;) {
		struct fi_cq_data_entry e;
		ssize_t err = fi_recv(ep, buf, sizeof buf, NULL, 0, buf);
		if (err == 0) {
			err = completion(&e);
			WANT(e.op_context == buf);
		}
		if (err != 0)
			break; /* the server has had enough */
		WANT(strcmp(buf, "go") == 0);
		CHECK(fi_send(ep, "on", 3, NULL, 0, "on"));
		WANT(outcome("on") == 0);
	}
	CHECK(fi_close(&ep->fid));
}

static void dial_all(const char *file, int n)
{
	struct fid_ep *ep;
	char to[64];
	address_of(file, to);
	for (int i = 0; i < n; i++) {
		int type = dial(to, "hello", NULL, &ep);
		if (type >= 0)
			fail(__LINE__, "a wrong answer was taken", -i);
		CHECK(fi_close(&ep->fid));
	}
}

int main(int argc, char **argv)
{
	role = argc > 1 ? argv[1] : "";
	if (argc < 3)
		fail(__LINE__, "usage: hostile serve|good|dial FILE [N]", 0);
	sleeps = getenv("FI_WAIT") != NULL;
	alarm(LIMIT);
	open_all();
	if (strcmp(role, "serve") == 0)
		serve_all(argv[2], atoi(argv[3]));
	else if (strcmp(role, "good") == 0)
		be_good(argv[2]);
	else
		dial_all(argv[2], atoi(argv[3]));
	close_all();
	printf("hostile %s: ok\n", role);
	return 0;
}
