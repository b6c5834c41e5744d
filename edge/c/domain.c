/* Memory that is exported to all connections of a domain (ABI A7.20). */
#include "conn.h"
#include "ring.h"

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

int edge_conn_resume(edge_conn *c)
{
	edge_device *d = c->d;
	enter(d);
	int err = conn_usable(c);
	if (err == 0)
		err = check_feature(d, EDGE_FEATURE_RESUME, "operations that are posted again in order");
	if (err == 0 && !ring_room(d->ring, 1))
		err = EDGE_ERR_AGAIN;
	if (err == 0) {
		ring_put(d->ring, &(struct abi_sqe){ .op = ABI_OP_RESUME, .conn = c->id });
		ring_publish(d);
	}
	return leave(d, err);
}
