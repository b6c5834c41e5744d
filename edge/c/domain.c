/* Memory that is exported to all connections of a domain (ABI A7.20). */
#include <stdlib.h>

#include "conn.h"

/* A request that somebody waits for; who gives up leaves it to the handler. */
struct asked { bool done, left; int err; uint64_t key; };

static void answered(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)fd;
	struct asked *a = call->obj;
	uint64_t key = err == 0 && m != NULL && m->h.kind == ABI_EXPORT ? m->exported.key : 0;
	if (!a->left) {
		*a = (struct asked){ .done = true, .err = err, .key = key };
		news(d);
		return;
	}
	struct abi_revoke none = { .key = key };
	if (key != 0) /* nobody knows of it */
		control_tell(d, &none, sizeof none, ABI_REVOKE);
	free(a);
}

static bool is_answered(void *arg)
{
	return ((struct asked *)arg)->done;
}

static int ask(edge_device *d, void *m, size_t size, enum abi_kind kind, uint64_t *key, int64_t until)
{
	struct asked *a = calloc(1, sizeof *a);
	int err = a == NULL ? EDGE_ERR_NO_MEMORY : control_send(d, m, size, kind, -1, answered, a, 0);
	if (err != 0) {
		free(a);
		return err;
	}
	err = wait_for(d, is_answered, a, answer_by(until));
	if (!a->done) {
		a->left = true;
		return err;
	}
	err = a->err;
	if (err == 0 && key != NULL)
		*key = a->key;
	free(a);
	return err;
}

int edge_share(edge_region *r, uint32_t domain, int perm, size_t off, size_t size, uint32_t high, uint64_t base,
               uint64_t *key, int timeout_ms)
{
	edge_device *d = r->d;
	int64_t until = deadline(timeout_ms);
	if (domain == 0)
		return fail(EDGE_ERR_INVALID, "0 is no domain; choose another number");
	enter(d);
	int err = check_feature(d, EDGE_FEATURE_DOMAINS, "domains");
	if (err == 0 && (r->closed || r->epoch != d->epoch || !d->attached))
		err = EDGE_ERR_STALE;
	struct abi_export m = { .off = off, .size = size, .region = r->id, .perm = (uint32_t)perm, .domain = domain,
		.base = base, .high = high };
	if (err == 0)
		err = ask(d, &m, sizeof m, ABI_EXPORT, key, until);
	return leave(d, err);
}

int edge_unshare(edge_device *d, uint64_t key, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	struct abi_revoke m = { .key = key };
	int err = d->dead != 0 || !d->attached ? 0 : ask(d, &m, sizeof m, ABI_REVOKE, NULL, until);
	/* It went with its region, with the daemon, or by an earlier call that did not wait long enough. */
	return leave(d, err == EDGE_ERR_KEY || err == EDGE_ERR_DAEMON_DOWN ? 0 : err);
}
