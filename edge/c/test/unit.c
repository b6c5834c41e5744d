/* What needs no daemon: structs against the golden file of docs/ABI.md A13.3, arguments, errors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../abi.h"
#include "../edge.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "unit.c:%d: %s (%s)\n", __LINE__, #x, \
    edge_detail()); exit(1); } } while (0)

/* Reads the bytes of the n-th struct of that name. Returns the file's length of it; zeros follow. */
static size_t golden(const char *file, const char *name, int nth, unsigned char *to, size_t size)
{
	char line[1024];
	FILE *f = fopen(file, "r");
	CHECK(f != NULL);
	size_t most = 0;
	memset(to, 0, size);
	while (fgets(line, sizeof line, f) != NULL) {
		line[strcspn(line, "\n")] = 0;
		if (strcmp(line, name) == 0 && nth-- == 0)
			break;
	}
	CHECK(nth < 0);
	while (fgets(line, sizeof line, f) != NULL && (line[0] == ' ' || (line[2] == ' ' && most == 0))) {
		char *p = line;
		size_t at = line[0] == ' ' ? strtoul(p, &p, 10) : 0;
		for (char *end; *p != '\n' && *p != 0; p = end, at++) {
			unsigned long b = strtoul(p, &end, 16);
			if (end == p)
				break;
			CHECK(at < size);
			to[at] = (unsigned char)b;
			most = at + 1;
		}
	}
	fclose(f);
	return most;
}

#define STR(s) { .size = sizeof s - 1, .bytes = s }

static void same(const char *file, const char *name, int nth, const void *ours, size_t size, size_t from)
{
	unsigned char want[2048];
	golden(file, name, nth, want, size);
	if (memcmp(want + from, (const char *)ours + from, size - from) != 0) {
		fprintf(stderr, "%s is not as in %s\n", name, file);
		exit(1);
	}
}

#define SAME(name, kind_, id_, flags_, ...) do { \
	__VA_ARGS__; \
	m.h.kind = kind_; m.h.id = id_; m.h.flags = flags_; \
	same(file, name, 0, &m, sizeof m, 4); /* Go leaves out zeros at the end (A3.5) */ \
} while (0)

static void structs(const char *file)
{
	SAME("hello", ABI_HELLO, 1, 0, struct abi_hello m = { .lowest = 2, .highest = 3, .features = (uint64_t)1 << 40,
	     .required = 1, .depth = 1024, .shard = 5, .sqe_size = 64, .cqe_size = 32, .name = STR("prog") });
	SAME("hello reply", ABI_HELLO, 1, 1, struct abi_hello_reply m = { .version = 2, .window = 7, .features = 1,
	     .sq_entries = 1024, .cq_entries = 4096, .sqe_size = 64, .cqe_size = 32, .shard = 2, .node = STR("0102"),
	     .name = STR("host") });
	SAME("register", ABI_REGISTER, 2, 0, struct abi_register m = { .size = (uint64_t)1 << 40, .flags = ABI_OWN });
	struct abi_register grant = { .h = { .kind = ABI_REGISTER, .id = 2 }, .size = (uint64_t)1 << 40, .flags = ABI_HEAP,
		.address = 0xc000001000 };
	same(file, "register", 1, &grant, sizeof grant, 4);
	SAME("register reply", ABI_REGISTER, 2, 1,
	     struct abi_register_reply m = { .size = (uint64_t)1 << 40, .region = 0x10001 });
	SAME("mapped", ABI_MAPPED, 3, 0, struct abi_region m = { .region = 0x10001 });
	SAME("dial", ABI_DIAL, 5, 0, struct abi_dial m = { .timeout = 5000000000, .flags = ABI_ORDERED, .peer = STR("peer"),
	     .service = STR("svc"), .scheduler = STR("sched"), .data = STR("\xd0\xd1") });
	SAME("dial reply", ABI_DIAL, 5, 1, struct abi_conn_reply m = { .conn = 7, .peer = STR("peer"),
	     .data = STR("\xd0\xd1") });
	SAME("listen", ABI_LISTEN, 6, 0, struct abi_service m = { .service = STR("svc") });
	SAME("accept", ABI_ACCEPT, 8, 0, struct abi_accept m = { .conn = 7, .data = STR("\xd0\xd1") });
	SAME("refuse", ABI_REFUSE, 9, 0, struct abi_refuse m = { .conn = 7, .text = STR("why") });
	SAME("export", ABI_EXPORT, 10, 0, struct abi_export m = { .off = 3, .size = 4, .conn = 7, .region = 0x10001,
	    .perm = 3,
	     .name = STR("mem") });
	SAME("export reply", ABI_EXPORT, 10, 1,
	     struct abi_export_reply m = { .key = (uint64_t)1 << 63, .size = 4, .conn = 7 });
	SAME("revoke", ABI_REVOKE, 11, 0, struct abi_revoke m = { .key = (uint64_t)1 << 63, .conn = 7 });
	SAME("queue reply", ABI_QUEUE, 20, 1, struct abi_queue m = { .queue = 3 });
	SAME("unqueue", ABI_UNQUEUE, 21, 0, struct abi_queue m = { .queue = 3 });
	SAME("join", ABI_JOIN, 22, 0, struct abi_join m = { .conn = 7, .queue = 3 });
	SAME("close", ABI_CLOSE, 12, 0, struct abi_conn m = { .conn = 7 });
	SAME("incoming", ABI_INCOMING, 0, 0, struct abi_incoming m = { .conn = 7, .service = STR("svc"),
	    .peer = STR("peer"),
	     .data = STR("\xd0\xd1") });
	SAME("advert", ABI_ADVERT, 0, 0, struct abi_advert m = { .key = (uint64_t)1 << 63, .size = 4, .conn = 7, .perm = 3,
	     .number = 9, .name = STR("mem") });
	SAME("closed", ABI_CLOSED, 0, 0, struct abi_closed m = { .conn = 7, .status = 201, .text = STR("why") });
	SAME("dial fails", ABI_DIAL, 14, 3, struct abi_failed m = { .status = 264, .text = STR("why") });
}

static void entries(const char *file)
{
	struct abi_sqe e = { .op = 1, .flags = 7, .conn = 1, .imm = 2, .token = 4, .key = 5, .remote_off = 6,
		.u.local = { .region = 3, .off = 7, .length = 8 } };
	same(file, "submission", 0, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = 1, .inline_len = 3, .conn = 1, .token = 4, .key = 5, .remote_off = 6,
		.u.bytes = { 7, 8, 9 } };
	same(file, "submission", 2, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = ABI_OP_CREDIT, .conn = 1, .imm = 2 };
	same(file, "submission", 3, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = EDGE_ATOMIC, .flags = 1, .inline_len = 24, .conn = 1, .imm = 2, .token = 3, .key = 4,
		.remote_off = 8, .u.atomic = { .func = EDGE_COMPARE_SWAP, .size = 8, .operand = 5, .compare = 6 } };
	same(file, "submission", 4, &e, sizeof e, 0);
	struct abi_pieces p = { .op = ABI_OP_PIECES, .count = 3, .conn = 1,
		.piece = { { 2, 3, 4 }, { 5, 6, 7 }, { 8, 9, 10 } } };
	same(file, "submission", 5, &p, sizeof p, 0);
	e = (struct abi_sqe){ .op = EDGE_SEND, .flags = 7, .conn = 1, .imm = 2, .token = 4, .remote_off = 6,
		.u.local = { .region = 3, .off = 7, .length = 8 } };
	same(file, "submission", 6, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = EDGE_RECEIVE, .token = 4, .key = 5, .u.local = { .region = 3, .off = 7, .length = 8 } };
	same(file, "submission", 8, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = ABI_OP_COMPOSE, .conn = 1, .token = 2, .key = 3, .remote_off = 4,
		.u.local = { .region = 5, .off = 6, .length = 7 } };
	same(file, "submission", 9, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = ABI_OP_WROTE, .conn = 1, .token = 2, .u.local = { .off = 3, .length = 4 } };
	same(file, "submission", 10, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = ABI_OP_COMMIT, .flags = 7, .conn = 1, .imm = 2, .token = 3, .u.local.length = 4 };
	same(file, "submission", 11, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = ABI_OP_DISCARD, .conn = 1, .token = 2 };
	same(file, "submission", 12, &e, sizeof e, 0);
	e = (struct abi_sqe){ .op = EDGE_TELL, .flags = 7, .conn = 1, .imm = 2, .token = 3, .remote_off = 4,
		.u.local.length = EDGE_MAX_MESSAGE };
	same(file, "submission", 13, &e, sizeof e, 0);
	struct abi_bytes b = { .op = ABI_OP_BYTES, .count = ABI_BYTES_IN_ENTRY, .conn = 7 };
	for (int i = 0; i < ABI_BYTES_IN_ENTRY; i++)
		b.bytes[i] = (uint8_t)(i + 1);
	same(file, "submission", 14, &b, sizeof b, 0);
	e = (struct abi_sqe){ .op = ABI_OP_RESUME, .conn = 1 };
	same(file, "submission", 15, &e, sizeof e, 0);
	struct abi_cqe c = { .kind = ABI_COMPLETION, .status = 202, .conn = 1, .token = 2 };
	same(file, "completion", 0, &c, sizeof c, 0);
	c = (struct abi_cqe){ .kind = ABI_NOTIFICATION, .conn = 1, .token = 2, .imm = 3, .length = 4, .offset = 5 };
	same(file, "completion", 1, &c, sizeof c, 0);
	c = (struct abi_cqe){ .kind = ABI_RECEIVED, .flags = ABI_HAS_IMM, .conn = 1, .token = 2, .imm = 3, .length = 4 };
	same(file, "completion", 3, &c, sizeof c, 0);
	unsigned char rings[8192];
	golden(file, "rings of 8192 bytes", 0, rings, sizeof rings);
	CHECK(rings[ABI_SQ_TAIL] == 1 && rings[ABI_SQ_HEAD] == 2 && rings[ABI_CQ_TAIL] == 3 && rings[ABI_CQ_HEAD] == 4);
	CHECK(rings[ABI_DAEMON_ASLEEP] == 5 && rings[ABI_CLIENT_ASLEEP] == 6 && rings[ABI_CLIENT_POLLING] == 7);
	CHECK(rings[ABI_PULSE] == 8 && rings[ABI_TOLD] == 9 && rings[ABI_RINGS] == 0xa0);
}

static int opens(edge_config cfg)
{
	edge_device *d = NULL;
	if (cfg.size == 0)
		cfg.size = sizeof cfg;
	if (cfg.socket == NULL)
		cfg.socket = "/nonexistent/edged.sock";
	int err = edge_open(&d, &cfg, 100);
	CHECK(d == NULL);
	return err;
}

static void arguments(void)
{
	char longer[200];
	memset(longer, 'x', sizeof longer);
	longer[199] = 0;
	CHECK(opens((edge_config){ 0 }) == EDGE_ERR_NO_DAEMON);
	CHECK(strstr(edge_detail(), "/nonexistent") != NULL);
	CHECK(opens((edge_config){ .size = 8 }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .size = offsetof(edge_config, resume) }) == EDGE_ERR_NO_DAEMON); /* from before it */
	CHECK(opens((edge_config){ .queue_depth = 48 }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .queue_depth = 1 << 17 }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .send_buffer = 2048 }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .receive_buffer = 5000 }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .wait = 3 }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .name = longer }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .name = "\xff" }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .socket = longer }) == EDGE_ERR_INVALID);
	CHECK(opens((edge_config){ .socket = "/proc/self/mem" }) < 0);
	edge_region *r;
	CHECK(edge_register(NULL, 0, &r, 0) == EDGE_ERR_INVALID);
	CHECK(edge_adopt(NULL, &r, 4096, &r, 0) == EDGE_ERR_INVALID);
	edge_op none = { 0 };
	CHECK(edge_op_done(&none) && edge_op_error(&none) == 0 && edge_op_wait(&none, 0) == 0);
	CHECK(edge_wrote(&none, 0, 0) == EDGE_ERR_INVALID && strstr(edge_detail(), "edge_compose") != NULL);
	CHECK(edge_commit(&none, 0, EDGE_LOCAL_DONE, 0) == EDGE_ERR_INVALID && edge_discard(&none) == EDGE_ERR_INVALID);
}

static void errors(void)
{
	for (int e = -1012; e <= 0; e++)
		CHECK(edge_strerror(e)[0] != 0 && edge_errno(e) >= 0);
	CHECK(strcmp(edge_strerror(EDGE_ERR_RESET), edge_strerror(EDGE_ERR_PEER_DOWN)) != 0);
	CHECK(edge_errno(EDGE_ERR_RESET) == ECONNRESET && edge_errno(EDGE_ERR_AGAIN) == EAGAIN && edge_errno(0) == 0);
	CHECK(edge_errno(EDGE_ERR_SHUT) == EPIPE && edge_errno(-77) == EIO);
	CHECK(edge_error_is(EDGE_ERR_REVOKED, EDGE_ERR_KEY) && edge_error_is(EDGE_ERR_STALE, EDGE_ERR_DAEMON_DOWN));
	CHECK(!edge_error_is(EDGE_ERR_KEY, EDGE_ERR_REVOKED) && !edge_error_is(0, EDGE_ERR_KEY) && edge_error_is(-77, -77));
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	structs(argv[1]);
	entries(argv[1]);
	arguments();
	errors();
	return 0;
}
