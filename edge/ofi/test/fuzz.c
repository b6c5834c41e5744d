/*
 * fuzz [SECONDS [SEED]]: the provider with a libedge that is made up here, against peers that say what they like. Each
 * world has one connection, whose peer sends headers that are right, nearly right or not at all, in pieces of any
 * length, while the program posts and cancels. Memory lies in blocks of its own, so that the sanitizers see a byte
 * beyond; and whatever was posted must have come back once, and only once, when the endpoint is closed, and have been
 * counted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "../provider.h"
#include "dice.h"
#include "nomemory.h"

#define WANT(x) do { if (!(x)) die(__LINE__, #x); } while (0)

enum { MEMORY = 5000, SLOTS = 64, INPUT = 1 << 16, MOVES = 300 };

void __sanitizer_set_death_callback(void (*)(void));
struct fi_provider *fi_prov_ini(void);

static uint64_t seed;

static void say_seed(void)
{
	fprintf(stderr, "fuzz: world %llu: fuzz 0 %llu repeats it\n", (unsigned long long)seed, (unsigned long long)seed);
}

static void die(int line, const char *what)
{
	fprintf(stderr, "FAIL: line %d: want %s\n", line, what);
	say_seed();
	exit(1);
}

/* --- libedge, made up --- */

struct edge_device { int fd; };
struct edge_request { char data[REQUEST]; size_t size; bool conn; /* and no stream */ };
struct edge_stream { void *context; bool cut, shut; };

static struct edge_device device;
static struct edge_stream stream;
static struct edge_request *asking; /* a request that the listener has */
static void *listener;              /* its context */

static struct { unsigned char bytes[INPUT]; size_t head, come, tail; bool over; } input; /* what the peer has sent */
/* And what it has heard. */
static struct { struct header h[SLOTS]; size_t n; char part[HEADER]; size_t got; uint64_t left; } output;

int edge_open(edge_device **d, const edge_config *cfg, int ms) { (void)cfg, (void)ms; *d = &device; return 0; }
void edge_device_close(edge_device *d, int ms) { (void)d, (void)ms; }
int edge_device_error(edge_device *d) { (void)d; return 0; }
int edge_device_fd(edge_device *d) { return d->fd; }
int edge_device_arm(edge_device *d) { (void)d; return 1; }
int edge_device_poll(edge_device *d) { (void)d; return 1; }
const char *edge_device_node(edge_device *d) { (void)d; return "0011223344556677"; }
const char *edge_device_name(edge_device *d) { (void)d; return "here"; }

int edge_changed(edge_device *d, void **contexts, size_t n)
{
	(void)d;
	int k = 0;
	if (stream.context != NULL && n > 1)
		contexts[k++] = stream.context;
	if (asking != NULL && listener != NULL)
		contexts[k++] = listener;
	return k;
}

int edge_listen(edge_device *d, const char *service, edge_listener **l, int ms)
{
	(void)d, (void)service, (void)ms;
	*l = (edge_listener *)&listener;
	return 0;
}

void edge_listener_watch(edge_listener *l, void *context) { (void)l; listener = context; }
void edge_listener_close(edge_listener *l) { (void)l; listener = NULL; }

int edge_listener_next(edge_listener *l, edge_request **r, int ms)
{
	(void)l, (void)ms;
	*r = asking;
	asking = NULL;
	return *r != NULL ? 0 : EDGE_ERR_AGAIN;
}

const char *edge_request_peer(const edge_request *r) { return r->size % 2 ? "a name" : "8899aabbccddeeff"; }
int edge_request_refuse(edge_request *r, const char *why) { (void)why; free(r); return 0; }

int edge_request_stream(const edge_request *r, const void **data, size_t *size)
{
	*data = r->data;
	*size = r->size;
	return !r->conn;
}

const void *edge_request_data(const edge_request *r, size_t *size)
{
	*size = r->size;
	return r->data;
}

int edge_request_accept_stream(edge_request *r, edge_stream **s)
{
	free(r);
	if (once_in(10))
		return EDGE_ERR_RESET;
	*s = &stream;
	return 0;
}

int edge_stream_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o,
                           edge_stream **s, int ms)
{
	(void)d, (void)peer, (void)service, (void)o, (void)ms;
	*s = &stream;
	return 0;
}

void edge_stream_watch(edge_stream *s, void *context) { s->context = context; }
int edge_stream_error(edge_stream *s) { return s->cut ? EDGE_ERR_RESET : once_in(4) ? EDGE_ERR_AGAIN : 0; }
int edge_stream_shutdown(edge_stream *s) { s->shut = true; return 0; }
void edge_stream_reset(edge_stream *s) { s->cut = true; }
void edge_stream_close(edge_stream *s, int ms) { (void)ms; *s = (struct edge_stream){ .cut = true }; }

ssize_t edge_stream_read(edge_stream *s, void *p, size_t n, int ms)
{
	(void)ms;
	size_t there = input.come - input.head, most = 1 + below(once_in(3) ? 50 : INPUT);
	WANT(n > 0);
	if (s->cut)
		return EDGE_ERR_RESET;
	if (there == 0)
		return input.over ? 0 : EDGE_ERR_AGAIN;
	n = n < there ? n : there;
	n = n < most ? n : most;
	memcpy(p, input.bytes + input.head, n);
	input.head += n;
	return (ssize_t)n;
}

/* What the peer remembers of what we send: the last headers. They must be in order. */
static void heard(const char *p, size_t n)
{
	for (size_t k; n > 0; p += k, n -= k) {
		if (output.left > 0) {
			k = n < output.left ? n : output.left;
			output.left -= k;
			continue;
		}
		k = n < HEADER - output.got ? n : HEADER - output.got;
		memcpy(output.part + output.got, p, k);
		output.got += k;
		if (output.got < HEADER)
			continue;
		struct header *h = &output.h[output.n++ % SLOTS];
		*h = header_of(output.part);
		output.got = 0;
		WANT(h->kind >= K_MESSAGE && h->kind <= K_ATOMIC && h->flags <= 3);
		output.left = h->kind == K_READ ? 0 : h->size;
	}
}

ssize_t edge_stream_write(edge_stream *s, const void *p, size_t n, int ms)
{
	(void)ms;
	size_t most = 1 + below(once_in(3) ? 50 : INPUT);
	if (s->cut || s->shut)
		return s->cut ? EDGE_ERR_RESET : EDGE_ERR_SHUT;
	if (once_in(5))
		return EDGE_ERR_AGAIN;
	n = n < most ? n : most;
	heard(p, n);
	return (ssize_t)n;
}

/* --- the peer --- */

static uint64_t noise; /* a header in so many is wrong, often so many that a connection lasts */
static uint64_t keys[2] = { 7, 8 }; /* the second may be read only */

static uint64_t odd_number(void)
{
	static const uint64_t often[] = { 0, 1, 2, 7, 8, 39, 40, 41, 255, 256, 257, 4095, 4096, 4097, MEMORY - 1, MEMORY,
		MEMORY + 1, 1 << 16, UINT32_MAX, UINT64_C(1) << 32, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 39, UINT64_MAX };
	return once_in(8) ? any() : often[below(sizeof often / sizeof *often)];
}

static void feed(const struct header *h, uint64_t payload)
{
	char bytes[HEADER];
	header_put(bytes, h);
	if (once_in(noise))
		bytes[below(HEADER)] ^= (char)(1u << below(8));
	if (input.tail + HEADER + payload > INPUT)
		return;
	memcpy(input.bytes + input.tail, bytes, HEADER);
	input.tail += HEADER;
	for (; payload > 0; payload--)
		input.bytes[input.tail++] = (unsigned char)any();
}

/* A header as it should be, about; its payload follows. */
static void feed_request(void)
{
	struct header h = { .kind = (uint8_t)(1 + below(3)), .flags = (uint8_t)below(4), .id = (uint32_t)below(100),
		.size = below(600), .key = keys[below(2)], .addr = below(MEMORY), .data = any() };
	if (once_in(4)) {
		size_t width = (size_t)1 << below(4), n = 1 + below(8), form = below(3);
		static const uint8_t types[4] = { FI_UINT8, FI_INT16, FI_FLOAT, FI_DOUBLE };
		h.kind = K_ATOMIC;
		h.addr &= ~(uint64_t)7;
		h.data = (form == 2 ? FI_CSWAP + below(7) : below(FI_CSWAP)) |
		         (uint64_t)types[width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3] << 8 | form << 16 | n << 32;
		h.size = n * width * ((h.data & 0xff) == FI_ATOMIC_READ ? 0 : form == 2 ? 2 : 1);
	}
	feed(&h, h.kind == K_READ ? 0 : h.size);
}

static void feed_answer(void)
{
	if (output.n == 0)
		return;
	size_t i = below(output.n < SLOTS ? output.n : SLOTS);
	struct header *asked = &output.h[i];
	bool asks = asked->kind == K_WRITE || asked->kind == K_READ || asked->kind == K_ATOMIC ||
	            (asked->kind == K_MESSAGE && (asked->flags & F_ANSWER));
	if ((!asks || asked->status != 0 || (i == (output.n - 1) % SLOTS && output.left > 0)) && !once_in(noise))
		return;
	asked->status = 1; /* it is answered */
	struct header h = { .kind = K_DONE, .id = asked->id, .status = once_in(4) ? (uint16_t)below(20) : 0 };
	if (asked->kind == K_READ || (asked->kind == K_ATOMIC && (asked->data >> 16 & 3) != 0)) {
		h.kind = K_DATA;
		h.size = h.status != 0 ? 0 : asked->kind == K_READ ? asked->size : 8 * (asked->data >> 32);
	}
	if (once_in(noise))
		h.size += below(100);
	feed(&h, h.size);
}

static void feed_nonsense(void)
{
	struct header h = { .kind = (uint8_t)(once_in(3) ? any() : below(10)),
		.flags = (uint8_t)(once_in(3) ? any() : below(4)), .status = (uint16_t)odd_number(),
		.id = (uint32_t)odd_number(),
		.size = odd_number(), .addr = odd_number(),
		.key = once_in(2) ? keys[below(2)] : odd_number(), .data = odd_number() };
	feed(&h, below(400));
}

static void peer_moves(void)
{
	if (input.head > INPUT / 2) {
		memmove(input.bytes, input.bytes + input.head, input.tail - input.head);
		input.tail -= input.head;
		input.come -= input.head;
		input.head = 0;
	}
	switch (below(24)) {
	case 0: case 1: case 2: case 3: case 4: case 5: case 6: case 7: feed_request(); break;
	case 8: case 9: case 10: case 11: case 12: case 13: feed_answer(); break;
	case 14: once_in(noise) ? feed_nonsense() : feed_request(); break;
	case 15: input.over |= once_in(noise); break;
	default: break;
	}
	size_t more = below(800), left = input.tail - input.come;
	input.come += more < left ? more : left;
}

/* --- the program --- */

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_pep *pep;
static struct fid_ep *srx, *ep;
static struct fi_info *info;
static struct fid_mr *mrs[2];
static struct fid_cntr *cntrs[COUNTERS];
static uint64_t came[COUNTERS][2]; /* what came back, by what it was, well and in error */
static uint64_t injected;          /* messages, of which nobody is told */
static char *memory[2], quiet[MEMORY];
static bool scarce; /* buffers for messages */

/* A block that a completion must bring back, once. */
struct block { struct block *next, **at; bool receives; size_t size; char bytes[]; };
static struct block *blocks;

static struct block *block_new(size_t size, bool receives)
{
	struct block *b = malloc(sizeof *b + size);
	WANT(b != NULL);
	*b = (struct block){ .next = blocks, .at = &blocks, .receives = receives, .size = size };
	memset(b->bytes, 1, size);
	if (b->next != NULL)
		b->next->at = &b->next;
	return blocks = b;
}

static void block_back(struct block *b)
{
	struct block *known = blocks;
	while (known != NULL && known != b)
		known = known->next;
	WANT(known != NULL); /* else it came back twice, or never was posted */
	*b->at = b->next;
	if (b->next != NULL)
		b->next->at = b->at;
	free(b);
}

static uint64_t *came_of(uint64_t flags)
{
	WANT(__builtin_popcountll(flags & COUNTED) == 1);
	return came[__builtin_ctzll((flags & COUNTED) / FI_READ)];
}

/* The queue and the counters tell the same. */
static void compare_counters(void)
{
	for (uint64_t i = 0, flag = FI_READ; i < COUNTERS; i++, flag <<= 1) {
		uint64_t well = fi_cntr_read(cntrs[i]), badly = fi_cntr_readerr(cntrs[i]), *told = came_of(flag);
		if (flag & (FI_READ | FI_WRITE | FI_RECV))
			WANT(well == told[0] && badly == told[1]);
		else if (flag == FI_SEND)
			WANT(well >= told[0] && badly >= told[1] && well + badly == told[0] + told[1] + injected);
		else
			WANT(well >= told[0] && badly == 0); /* of writes the queue has those with data */
		fi_cntr_set(cntrs[i], 0);
		fi_cntr_seterr(cntrs[i], 0);
	}
	memset(came, 0, sizeof came);
	injected = 0;
}

static void take_completions(size_t most)
{
	struct fi_cq_data_entry e;
	struct fi_cq_err_entry bad = { 0 };
	for (ssize_t n; most > 0 && (n = fi_cq_read(cq, &e, 1)) != -FI_EAGAIN; most--) {
		WANT(n == 1 || n == -FI_EAVAIL);
		if (n == 1) {
			came_of(e.flags)[0]++;
			if (e.flags & FI_REMOTE_WRITE) {
				WANT(e.op_context == NULL);
				continue;
			}
			WANT(!(e.flags & FI_RECV) || e.len <= ((struct block *)e.op_context)->size);
			block_back(e.op_context);
		} else {
			WANT(fi_cq_readerr(cq, &bad, 0) == 1 && bad.err > 0);
			came_of(bad.flags)[1]++;
			block_back(bad.op_context);
		}
	}
}

static ssize_t send_something(size_t n, uint64_t key, uint64_t addr)
{
	struct block *b = block_new(n, false);
	struct iovec v[2] = { { b->bytes, n / 3 }, { b->bytes + n / 3, n - n / 3 } };
	struct fi_msg m = { .msg_iov = v, .iov_count = 2, .context = b };
	struct fi_rma_iov at = { addr, n, key };
	struct fi_msg_rma w = { .msg_iov = v, .iov_count = 2, .rma_iov = &at, .rma_iov_count = 1, .context = b };
	uint64_t fence = once_in(4) ? FI_FENCE : 0;
	size_t words = n / 8 < 8 ? n / 8 : 8;
	ssize_t err = -FI_EAGAIN;
	switch (below(7)) {
	case 0: err = fi_sendmsg(ep, &m, FI_COMPLETION | fence | (once_in(2) ? FI_DELIVERY_COMPLETE : 0)); break;
	case 1: err = fi_writemsg(ep, &w, FI_COMPLETION | fence); break;
	case 2: case 3: err = fi_read(ep, b->bytes, n, NULL, 0, addr, key, b); break;
	case 4: err = fi_atomic(ep, b->bytes, words, NULL, 0, addr, key, FI_UINT64, FI_SUM, b); break;
	case 5:
		err = fi_fetch_atomic(ep, b->bytes, words, NULL, b->bytes, NULL, 0, addr, key, FI_DOUBLE, FI_PROD, b);
		break;
	case 6: injected += fi_inject(ep, b->bytes, n < 300 ? n : 300, 0) == 0;
	}
	if (err != 0)
		block_back(b);
	return err;
}

static void receive_something(void)
{
	struct block *b = block_new(below(3) ? below(700) : 0, true);
	size_t half = b->size / 2;
	struct iovec v[3] = { { b->bytes, half }, { b->bytes, 0 }, { b->bytes + half, b->size - half } };
	if (fi_recvv(srx != NULL ? srx : ep, v, NULL, 3, 0, b) != 0)
		block_back(b);
	else if (ep != NULL && once_in(20))
		fi_cancel(srx != NULL ? &srx->fid : &ep->fid, b);
}

static void forget(size_t i)
{
	WANT(fi_close(&mrs[i]->fid) == 0);
	WANT(i == 0 || memcmp(memory[1], quiet, MEMORY) == 0); /* which may be read only */
	free(memory[i]);
	mrs[i] = NULL;
}

static void forget_memory(void)
{
	for (size_t i = 0; i < 2; i++)
		if (mrs[i] != NULL)
			forget(i);
}

static void change_memory(void)
{
	uint64_t access[2] = { FI_REMOTE_READ | FI_REMOTE_WRITE, FI_REMOTE_READ };
	size_t i = below(2);
	if (mrs[i] != NULL) {
		forget(i);
		return;
	}
	memory[i] = calloc(1, MEMORY);
	WANT(memory[i] != NULL && fi_mr_reg(domain, memory[i], MEMORY, access[i], 0, keys[i], 0, &mrs[i], NULL) == 0);
}

static void program_moves(void)
{
	switch (below(12)) {
	case 0: case 1: case 2: if (!scarce || once_in(10)) receive_something(); break;
	case 3: case 4: send_something(once_in(9) ? 20000 : below(500), keys[below(2)], below(MEMORY)); break;
	case 5: case 6: case 7: case 8: take_completions(1 + below(20)); break;
	case 9: if (once_in(2)) change_memory(); break;
	case 10: if (once_in(60)) fi_shutdown(ep, 0); break;
	default: break;
	}
}

static struct fid_ep *endpoint(struct fi_info *of)
{
	struct fid_ep *e;
	of->ep_attr->rx_ctx_cnt = srx != NULL ? FI_SHARED_CONTEXT : 1;
	WANT(fi_endpoint(domain, of, &e, NULL) == 0 && fi_ep_bind(e, &eq->fid, 0) == 0);
	WANT(fi_ep_bind(e, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	WANT(srx == NULL || fi_ep_bind(e, &srx->fid, 0) == 0);
	for (int i = 0; i < COUNTERS; i++)
		WANT(fi_ep_bind(e, &cntrs[i]->fid, FI_READ << i) == 0);
	return e;
}

static ssize_t event(uint32_t *type, struct fi_eq_cm_entry *cm)
{
	struct fi_eq_err_entry bad = { 0 };
	ssize_t n = fi_eq_read(eq, type, cm, sizeof *cm, 0);
	if (n == -FI_EAVAIL)
		WANT(fi_eq_readerr(eq, &bad, 0) == sizeof bad && bad.err > 0);
	return n;
}

/* A request that a peer made up. */
static void ask(void)
{
	asking = calloc(1, sizeof *asking);
	WANT(asking != NULL);
	if (once_in(4)) { /* one for native.c, whose bytes another may say; or another length */
		asking->conn = true;
		memcpy(asking->data, "efn1", 4);
		asking->data[4] = (char)below(2);
		asking->size = once_in(6) ? below(REQUEST + 1) : 4 + TOKEN + 4;
		return;
	}
	size_t n = below(CM_DATA + 1), token = once_in(2) ? TOKEN : 0;
	asking->size = once_in(6) ? below(REQUEST + 1) : REQUEST - CM_DATA - TOKEN + n + token;
	asking->data[16] = token > 0;
	asking->data[REQUEST - CM_DATA - TOKEN + n] = token > 0 ? (char)below(2) : 0;
	memcpy(asking->data, "efi1\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 12);
	asking->data[14] = (char)(n & 0xff);
	asking->data[15] = (char)(n >> 8);
	if (once_in(4))
		asking->data[below(REQUEST)] ^= (char)(1u << below(8));
}

static bool connect_somehow(void)
{
	uint32_t type;
	struct fi_eq_cm_entry cm;
	if (once_in(2)) {
		struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = 1 };
		memcpy(a.sin6_addr.s6_addr, "\xfd\x65\x64\x67\x65", 5);
		ep = endpoint(info);
		WANT(fi_connect(ep, &a, "hello", 5) == 0);
		struct header h = { .kind = once_in(8) ? K_REJECT : K_ACCEPT, .size = below(300) };
		feed(&h, h.size);
		return true;
	}
	ask();
	if (event(&type, &cm) < 0 || type != FI_CONNREQ)
		return false;
	fid_t handle = cm.info->handle;
	ep = endpoint(cm.info);
	fi_freeinfo(cm.info);
	if (once_in(10) || fi_accept(ep, "welcome", 7) != 0) {
		WANT(fi_close(&ep->fid) == 0);
		if (once_in(2))
			WANT(fi_reject(pep, handle, "no", 2) == 0);
		ep = NULL;
		return false;
	}
	return true;
}

static void world(void)
{
	struct fi_rx_attr ra = { .size = 16 };
	uint32_t type;
	struct fi_eq_cm_entry cm;
	memset(&input, 0, sizeof input);
	memset(&output, 0, sizeof output);
	stream = (struct edge_stream){ .cut = false };
	noise = once_in(3) ? 10 : 500;
	scarce = once_in(3);
	if (once_in(3))
		WANT(fi_srx_context(domain, &ra, &srx, NULL) == 0);
	if (connect_somehow()) {
		for (int i = 0; i < MOVES; i++) {
			peer_moves();
			program_moves();
		}
		WANT(fi_close(&ep->fid) == 0);
		ep = NULL;
		if (srx != NULL)
			receive_something(); /* nobody waits for it any more */
	}
	take_completions(1 << 20);
	compare_counters();
	while (event(&type, &cm) != -FI_EAGAIN || container_of(fabric, struct fabric, fid)->refusals != NULL)
		;
	forget_memory();
	for (struct block *b = blocks, *next; b != NULL; b = next) { /* shared buffers that nobody used */
		next = b->next;
		WANT(srx != NULL && b->receives);
		block_back(b);
	}
	if (srx != NULL)
		WANT(fi_close(&srx->fid) == 0);
	srx = NULL;
	free(asking);
	asking = NULL;
}

static void open_all(void)
{
	setenv("FI_EDGE_SPIN", "0", 1);
	fi_prov_ini();
	device.fd = epoll_create1(0);
	struct fi_info *hints = fi_allocinfo();
	struct fi_eq_attr ea = { .wait_obj = FI_WAIT_NONE };
	struct fi_cq_attr ca = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE };
	WANT(hints != NULL && edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == 0);
	fi_freeinfo(hints);
	info->rx_attr->size = 16;
	WANT(edge_provider.fabric(info->fabric_attr, &fabric, NULL) == 0 && fi_domain(fabric, info, &domain, NULL) == 0);
	WANT(fi_eq_open(fabric, &ea, &eq, NULL) == 0 && fi_cq_open(domain, &ca, &cq, NULL) == 0);
	for (int i = 0; i < COUNTERS; i++)
		WANT(fi_cntr_open(domain, &(struct fi_cntr_attr){ 0 }, &cntrs[i], NULL) == 0);
	WANT(fi_passive_ep(fabric, info, &pep, NULL) == 0 && fi_pep_bind(pep, &eq->fid, 0) == 0 && fi_listen(pep) == 0);
}

static void close_all(void)
{
	for (int i = 0; i < COUNTERS; i++)
		WANT(fi_close(&cntrs[i]->fid) == 0);
	WANT(fi_close(&pep->fid) == 0 && fi_close(&cq->fid) == 0 && fi_close(&domain->fid) == 0);
	WANT(fi_close(&eq->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
	edge_provider.cleanup();
	close(device.fd);
}

int main(int argc, char **argv)
{
	time_t until = time(NULL) + (argc > 1 ? atoi(argv[1]) : 3);
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	__sanitizer_set_death_callback(say_seed);
	open_all();
	unsigned long n = 0;
	printf("fuzz: from world %llu\n", (unsigned long long)seed);
	fflush(stdout);
	do {
		state = seed;
		world();
		seed++;
		n++;
	} while (time(NULL) < until);
	close_all();
	printf("fuzz: ok, %lu worlds\n", n);
	return 0;
}
