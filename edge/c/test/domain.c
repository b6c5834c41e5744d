/* Memory that is shared with a domain: what one role gives, the other reaches. domain_test.go drives it. */
#include "test.h"

enum { SIZE = 1 << 16, DOMAIN = 5, SHARED = 4096 };

#define HIGH UINT32_C(0x1234abcd)
#define BASE UINT64_C(0x7f00deadb008)

static edge_completion next(edge_device *d)
{
	edge_completion c;
	IS(edge_completions_wait(d, &c, 1, WAIT), 1);
	return c;
}

/* Who does not resume is not refused what is behind an operation without room. */
static void resumes(void)
{
	for (int is = 0; is < 2; is++) {
		edge_device *d;
		OK(edge_open(&d, &(edge_config){ .size = sizeof (edge_config), .resume = is }, WAIT));
		IS((edge_device_features(d) & EDGE_FEATURE_RESUME) != 0, is);
		edge_device_close(d, 0);
	}
}

/* Accepts two connections, of which the first belongs to the domain, and tells their peer the key. */
static void give(const char *service)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_listener *l;
	edge_region *mem;
	edge_conn *c[2];
	uint64_t key, other;
	resumes();
	OK(edge_listen(d, service, &l, WAIT));
	OK(edge_register(d, SIZE, &mem, WAIT));
	int all = EDGE_REMOTE_READ | EDGE_REMOTE_WRITE | EDGE_REMOTE_ATOMIC;
	IS(edge_share(mem, 0, all, 0, 8, HIGH, BASE, &key, WAIT), EDGE_ERR_INVALID);
	IS(edge_share(mem, DOMAIN, all, 0, SIZE + 1, HIGH, BASE, &key, WAIT), EDGE_ERR_BOUNDS);
	IS(edge_share(mem, DOMAIN, all, 4, 8, HIGH, BASE, &key, WAIT), EDGE_ERR_INVALID);
	OK(edge_share(mem, DOMAIN, all, 0, SHARED, HIGH, BASE, &key, WAIT));
	OK(edge_share(mem, DOMAIN + 1, all, 0, SHARED, HIGH, BASE, &other, WAIT));
	CHECK(key >> 32 == HIGH && key != other);
	say("ready");
	for (int i = 0; i < 2; i++) {
		edge_request *r;
		OK(edge_listener_next(l, &r, WAIT));
		CHECK(strlen(edge_request_node(r)) == 16 && strcmp(edge_request_node(r), edge_device_node(d)) != 0);
		edge_request_join(r, i == 0 ? DOMAIN : DOMAIN + 2);
		OK(edge_request_accept(r, &key, sizeof key, &c[i], WAIT));
	}
	edge_work w = { .kind = EDGE_RECEIVE, .local = mem, .local_off = SHARED, .size = 16, .context = mem };
	OK(edge_post(c[0], &w, NULL));
	edge_completion done = next(d);
	IS(done.err, 0);
	CHECK(done.size == 1000 && done.imm == 77 && done.has_imm && done.tells);
	CHECK(strcmp((char *)edge_region_bytes(mem) + 8, "shared") == 0 && *(uint64_t *)edge_region_bytes(mem) == 3);
	CHECK(((char *)edge_region_bytes(mem))[SHARED] == 0);
	OK(edge_unshare(d, key, WAIT));
	OK(edge_unshare(d, key, WAIT)); /* it has ended */
	OK(edge_post(c[0], &w, NULL));  /* the peer may go on */
	while (edge_conn_error(c[0]) == 0)
		edge_completions_wait(d, &done, 1, 20);
	for (int i = 0; i < 2; i++)
		edge_conn_free(c[i]);
	edge_device_close(d, 0);
}

static int ends(edge_conn *c, edge_device *d, edge_work *w)
{
	w->context = w;
	OK(edge_post(c, w, NULL));
	return next(d).err;
}

static void take(const char *peer, const char *service)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_conn *c[2];
	edge_region *mem;
	edge_dial_options o = { .size = sizeof o, .ordered = 1 };
	OK(edge_register(d, SIZE, &mem, WAIT));
	for (int i = 0; i < 2; i++)
		OK(edge_dial(d, peer, service, &o, &c[i], WAIT));
	CHECK(strlen(edge_conn_node(c[0])) == 16 && strcmp(edge_conn_node(c[0]), edge_device_node(d)) != 0);
	size_t n;
	uint64_t key, was = 9;
	memcpy(&key, edge_conn_data(c[0], &n), sizeof key);
	strcpy(edge_region_bytes(mem), "shared");
	edge_work w = { .kind = EDGE_WRITE, .local = mem, .size = 7, .key = key, .remote_off = BASE + 8 };
	IS(ends(c[0], d, &w), 0);
	IS(ends(c[1], d, &w), EDGE_ERR_KEY); /* of another domain */
	w.remote_off = BASE;
	IS(ends(c[1], d, &w), EDGE_ERR_STOPPED);
	edge_work add = { .kind = EDGE_ATOMIC, .func = EDGE_FETCH_ADD, .size = 8, .operand = 3, .key = key,
		.remote_off = BASE,
		.result = &was };
	IS(ends(c[0], d, &add), 0);
	CHECK(was == 0);
	edge_work read = { .kind = EDGE_READ, .local = mem, .local_off = 100, .size = 7, .key = key,
		.remote_off = BASE + 8 };
	IS(ends(c[0], d, &read), 0);
	CHECK(strcmp((char *)edge_region_bytes(mem) + 100, "shared") == 0);
	IS(edge_post(c[0], &(edge_work){ .kind = EDGE_TELL, .wrote = 1 }, NULL), EDGE_ERR_INVALID); /* no EDGE_NOTIFY */
	IS(edge_post(c[0], &(edge_work){ .kind = EDGE_SEND, .wrote = 1 }, NULL), EDGE_ERR_INVALID);
	IS(edge_post(c[0], &(edge_work){ .kind = EDGE_TELL, .flags = EDGE_NOTIFY, .wrote = EDGE_MAX_MESSAGE + 1 }, NULL),
	   EDGE_ERR_TOO_LONG);
	w.remote_off = BASE + 1000;
	w.size = 1000;
	IS(ends(c[0], d, &w), 0);
	edge_work told = { .kind = EDGE_TELL, .flags = EDGE_NOTIFY, .imm = 77, .wrote = 1000 };
	IS(ends(c[0], d, &told), 0);
	edge_work last = { .kind = EDGE_SEND, .local = mem, .size = 1 };
	IS(ends(c[0], d, &last), 0); /* the key has gone by now */
	IS(ends(c[0], d, &w), EDGE_ERR_KEY);
	for (int i = 0; i < 2; i++) {
		edge_conn_close(c[i], WAIT);
		edge_conn_free(c[i]);
	}
	edge_device_close(d, 0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "give") == 0)
		give(argv[2]);
	else if (argc == 4 && strcmp(argv[1], "take") == 0)
		take(argv[2], argv[3]);
	else
		return 2;
	return 0;
}
