/*
 * mix SEED...: what TCP promises, by calls in a random mix. Each byte comes once and in order, the end comes after all
 * of them, and no call sleeps while there is something for it. It passes over TCP, and under edge-run. Each side is a
 * process: one that does both looks for itself. Connections take turns mostly, so that a wake-up that is lost stops
 * everything; then it says what each thread does. MIX_HOLD: it stays there, for a debugger.
 */
#pragma GCC diagnostic ignored "-Wunused-function" /* of tcp.h */
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "tcp.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { SLOTS = 5, POOL = 3, PIECE = 24 << 10, HANG = 10 };
enum { MASTERS, READERS = SLOTS, WRITERS = 2 * SLOTS, POOLED = 3 * SLOTS, HEAD = POOLED + POOL, WORKERS };
enum how { THREADS, LEVEL, EDGE, ONESHOT, HOWS };

struct worker {
	pthread_t thread;
	void *(*run)(void *);
	struct conn *conn;
	const char *what; /* it does; NULL: it has ended, or did not begin */
	uint64_t rnd;
	_Atomic bool done;
};
struct side { uint64_t key, pos, total, chunk; _Atomic int fd; int set; bool over, timed; };
struct conn {
	pthread_mutex_t mu, pool; /* pool: one of its threads at a time */
	pthread_cond_t turn;
	struct side in, out;
	enum how how;
	bool turns, pooled;
	int listener;
	struct sockaddr_in address;
};

static struct conn conns[SLOTS];
static struct worker workers[WORKERS];
static __thread struct worker *me;
static __thread int breaks; /* handlers without SA_RESTART that ran */
static uint64_t seed;
static bool serving, plan_signals, plan_cancels, plan_forks, plan_pauses;
static int nconns, npool, rounds, pool_set;
static _Atomic long steps;

static uint64_t mixed(uint64_t x) {
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}
static uint64_t draw(uint64_t n) { return (me->rnd = mixed(me->rnd)) % n; }
static bool chance(uint64_t n) { return draw(n) == 0; }
static char content(uint64_t key, uint64_t pos) { return (char)(mixed(key + (pos >> 3)) >> (pos & 7) * 8); }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static void doze(uint64_t us) { nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL); }

static void fatal(int line, const char *what) {
	printf("FAIL seed %lu, %s %d: line %d: %s (%m)\n", seed, serving ? "server" : "client", getpid(), line, what);
	for (const struct worker *w = workers; w < workers + WORKERS; w++) {
		const struct conn *c = w->conn ? w->conn : conns;
		if (w->what)
			printf("%s thread %ld %s, connection %ld%s: in %lu of %lu, out %lu of %lu\n", w == me ? ">" : " ",
			       w - workers, w->what, c - conns, c->turns ? " in turns" : "", c->in.pos, c->in.total, c->out.pos,
			       c->out.total);
	}
	if (getenv("MIX_HOLD"))
		pause();
	kill(getpid(), SIGKILL);
}
#define MUST(x) ((x) ? (void)0 : fatal(__LINE__, #x))

static void on_break(int n) { (void)n, breaks++; }
static void on_restart(int n) {
	struct pollfd p = {.fd = me && me->conn ? me->conn->in.fd : -1, .events = POLLIN};
	int err = errno;
	(void)n, poll(&p, 1, 0);
	errno = err;
}

/* A failed call that may be made again. restarts: after a handler with SA_RESTART it goes on. */
static bool again(ssize_t r, int before, bool restarts) {
	MUST(r >= 0 || errno == EAGAIN || (errno == EINTR && (breaks != before || !restarts)));
	return r < 0;
}

/* --- a thread for each direction --- */

static void cancels(bool on) { pthread_setcancelstate(on ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE, NULL); }

/* Waits for data or room in one of many ways. It may be cancelled there, and nothing is lost. */
static bool await(struct side *s, bool out) {
	int ms = chance(3) ? (int)draw(20) : -1, r = 0;
	struct pollfd p = {.fd = s->fd, .events = out ? POLLOUT : POLLIN};
	struct epoll_event e = {.events = out ? EPOLLOUT : EPOLLIN}, got;
	struct timeval t = {.tv_usec = ms * 1000};
	struct timespec ts = {.tv_nsec = ms * 1000000L};
	sigset_t none;
	fd_set set;
	FD_ZERO(&set);
	FD_SET(p.fd, &set);
	sigemptyset(&none);
	uint64_t how = draw(5);
	e.events |= how == 3 ? EPOLLET : 0;
	if (how >= 3 && epoll_ctl(s->set, EPOLL_CTL_ADD, p.fd, &e))
		MUST(errno == EEXIST && epoll_ctl(s->set, EPOLL_CTL_MOD, p.fd, &e) == 0);
	me->what = out ? "waits for room" : "waits for data";
	cancels(true);
	switch (how) {
	case 0: r = poll(&p, 1, ms); break;
	case 1: r = ppoll(&p, 1, ms < 0 ? NULL : &ts, &none); break;
	case 2: r = select(p.fd + 1, out ? NULL : &set, out ? &set : NULL, NULL, ms < 0 ? NULL : &t); break;
	default: r = epoll_wait(s->set, &got, 1, ms);
	}
	cancels(false);
	MUST(r > 0 || (r == 0 && ms >= 0) || (r < 0 && errno == EINTR));
	if (how >= 3)
		MUST(epoll_ctl(s->set, EPOLL_CTL_DEL, p.fd, NULL) == 0);
	return r > 0;
}

/* Now and then the descriptor becomes another one, and its time-out too. */
static void changes(struct side *s, int option) {
	struct timeval t = {.tv_usec = chance(2) ? 0 : (long)draw(20000)};
	int old = s->fd;
	if (chance(20)) {
		s->timed = t.tv_usec > 0;
		MUST(setsockopt(old, SOL_SOCKET, option, &t, sizeof t) == 0);
	}
	if (!chance(40))
		return;
	epoll_ctl(s->set, EPOLL_CTL_DEL, old, NULL);
	MUST((s->fd = dup(old)) >= 0 && close(old) == 0);
}

/* What comes next: up to there a call may wait for all. */
static uint64_t readable(const struct conn *c) {
	return c->turns ? c->in.chunk - c->in.pos % c->in.chunk : c->in.total - c->in.pos;
}
static uint64_t writable(const struct conn *c) {
	const struct side *i = &c->in, *o = &c->out;
	return (c->turns ? least((i->pos / i->chunk + !serving) * o->chunk, o->total) : o->total) - o->pos;
}

/* What came, or would be read next. */
static void came(struct conn *c, const char *p, ssize_t n, bool taken) {
	struct side *i = &c->in;
	MUST(n > 0 || i->pos == i->total);
	for (ssize_t k = 0; k < n; k++)
		MUST(p[k] == content(i->key, i->pos + (uint64_t)k));
	if (!taken)
		return;
	pthread_mutex_lock(&c->mu);
	i->pos += (uint64_t)n;
	i->over |= n == 0;
	pthread_cond_broadcast(&c->turn);
	pthread_mutex_unlock(&c->mu);
	steps++;
}

static void read_some(struct conn *c) {
	char b[PIECE];
	struct side *i = &c->in;
	size_t n = 1 + draw(chance(4) ? PIECE : 64), all = least(n, readable(c) + !readable(c));
	struct iovec v[2] = {{b, n / 3}, {b + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	int fd = i->fd, before = breaks;
	uint64_t how = draw(10);
	if (how >= 8 && !await(i, false))
		return;
	const char *names[] = {"read", "readv", "recvmsg", "peek", "peek all", "recv all", "recv", "recv now"};
	me->what = names[least(how, 7)];
	if (how == 4 && !i->timed) /* Linux loses the wake-up for what comes into the buffer that it has looked at */
		how = 3;
	cancels(how == 3 || how == 4);
	ssize_t r = how == 0   ? read(fd, b, n)
	            : how == 1 ? readv(fd, v, 2)
	            : how == 2 ? recvmsg(fd, &m, 0)
	            : how == 3 ? recv(fd, b, n, MSG_PEEK)
	            : how == 4 ? recv(fd, b, least(all, 4096), MSG_PEEK | MSG_WAITALL)
	            : how == 5 ? recv(fd, b, all, MSG_WAITALL)
	                       : recv(fd, b, n, how == 6 ? 0 : MSG_DONTWAIT);
	cancels(false);
	MUST(how < 8 || r >= 0); /* await said so */
	if (!again(r, before, how < 7 && !i->timed))
		came(c, b, r, how != 3 && how != 4);
}

static void write_some(struct conn *c, size_t n) {
	char b[PIECE];
	struct side *o = &c->out;
	n = least(n, 1 + draw(chance(3) ? PIECE : 100));
	for (size_t i = 0; i < n; i++)
		b[i] = content(o->key, o->pos + i);
	struct iovec v[3] = {{b, n / 4}, {b + n / 4, n / 2}, {b + n / 4 + n / 2, n - n / 4 - n / 2}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
	int fd = o->fd, before = breaks, file = -1;
	off_t at = 0;
	uint64_t how = draw(7);
	if (how == 6 && !await(o, true))
		return;
	if (how == 3)
		MUST((file = memfd_create("mix", MFD_CLOEXEC)) >= 0 && pwrite(file, b, n, 0) == (ssize_t)n);
	me->what = (const char *[]){"write", "writev", "sendmsg", "sendfile", "send", "send now", "send now"}[how];
	ssize_t r = how == 0   ? write(fd, b, n)
	            : how == 1 ? writev(fd, v, 3)
	            : how == 2 ? sendmsg(fd, &m, MSG_NOSIGNAL)
	            : how == 3 ? sendfile(fd, file, &at, n)
	                       : send(fd, b, n, how == 4 ? 0 : MSG_DONTWAIT);
	bool failed = again(r, before, how < 5 && !o->timed);
	MUST(how != 3 || (close(file) == 0 && at == (failed ? 0 : r)));
	o->pos += failed ? 0 : (uint64_t)r;
	steps++;
}

/* Others shall sleep meanwhile. */
static void pauses(void) {
	if (plan_pauses && chance(4))
		doze(draw(4000));
}

static void *reads(void *arg) {
	struct conn *c = (me = arg)->conn;
	for (cancels(false); !c->in.over; changes(&c->in, SO_RCVTIMEO))
		read_some(c);
	me->done = true;
	return NULL;
}

static void *writes(void *arg) {
	struct conn *c = (me = arg)->conn;
	for (cancels(false); !c->out.over; changes(&c->out, SO_SNDTIMEO)) {
		me->what = "waits for its turn";
		pthread_mutex_lock(&c->mu);
		while (writable(c) == 0 && c->out.pos < c->out.total)
			pthread_cond_wait(&c->turn, &c->mu);
		pthread_mutex_unlock(&c->mu);
		pauses();
		if (c->out.pos < c->out.total)
			write_some(c, writable(c));
		else
			MUST((c->out.over = shutdown(c->out.fd, SHUT_WR) == 0));
	}
	me->done = true;
	return NULL;
}

/* --- threads that share a set --- */

static void rearm(const struct conn *c, int op, bool blocked) {
	struct epoll_event e = {.data.u64 = (uint64_t)(c - conns)};
	e.events = c->how == EDGE ? EPOLLIN | EPOLLOUT | EPOLLET : (c->in.over ? 0u : EPOLLIN) | (blocked ? EPOLLOUT : 0u);
	e.events |= c->how == ONESHOT ? EPOLLONESHOT : 0u;
	MUST(epoll_ctl(pool_set, op, c->in.fd, &e) == 0);
}

static void serve(struct conn *c) {
	char b[PIECE];
	struct side *i = &c->in, *o = &c->out;
	bool blocked = false;
	if (!c->pooled)
		return;
	pauses();
	while (!i->over && (c->how == EDGE || !chance(5))) {
		ssize_t r = recv(i->fd, b, 1 + draw(PIECE), MSG_DONTWAIT);
		if (again(r, breaks, true))
			break;
		came(c, b, r, true);
	}
	for (size_t n; !blocked && (n = least(writable(c), 1 + draw(PIECE))) > 0; steps++) {
		for (size_t k = 0; k < n; k++)
			b[k] = content(o->key, o->pos + k);
		ssize_t r = send(o->fd, b, n, MSG_DONTWAIT);
		blocked = again(r, breaks, true);
		o->pos += blocked ? 0 : (uint64_t)r;
	}
	if (o->pos == o->total && !o->over)
		MUST((o->over = shutdown(o->fd, SHUT_WR) == 0));
	if (!i->over || !o->over) {
		if (c->how != EDGE)
			rearm(c, EPOLL_CTL_MOD, blocked);
		return;
	}
	MUST(epoll_ctl(pool_set, EPOLL_CTL_DEL, i->fd, NULL) == 0);
	pthread_mutex_lock(&c->mu);
	c->pooled = false;
	pthread_cond_broadcast(&c->turn);
	pthread_mutex_unlock(&c->mu);
}

static void *pooled(void *arg) {
	struct epoll_event e[4];
	me = arg;
	cancels(false);
	while (!me->done) {
		me->what = "waits in the pool";
		cancels(true);
		int n = epoll_wait(pool_set, e, 1 + (int)draw(4), chance(10) ? (int)draw(20) : -1);
		cancels(false);
		MUST(n >= 0 || errno == EINTR);
		for (int i = 0; i < n; i++) {
			if ((me->done |= e[i].data.u64 == SLOTS))
				break;
			me->conn = &conns[e[i].data.u64];
			me->what = "serves";
			pthread_mutex_lock(&me->conn->pool);
			serve(me->conn);
			pthread_mutex_unlock(&me->conn->pool);
		}
		me->conn = NULL;
	}
	return NULL;
}

/* --- connections --- */

static void begin(int i, void *(*run)(void *), struct conn *c) {
	struct worker *w = &workers[i];
	*w = (struct worker){.run = run, .conn = c, .what = "begins", .rnd = mixed(w->rnd + seed * 99 + (uint64_t)i * 2)};
	MUST(pthread_create(&w->thread, NULL, run, w) == 0);
}

/* Interrupts a thread, or ends it and begins it again. */
static void disturb(struct worker *w) {
	if (plan_signals && chance(2))
		pthread_kill(w->thread, chance(2) ? SIGUSR1 : SIGUSR2);
	if (!plan_cancels || !chance(4))
		return;
	MUST(pthread_cancel(w->thread) == 0 && pthread_join(w->thread, NULL) == 0);
	MUST(pthread_create(&w->thread, NULL, w->run, w) == 0); /* which ends at once if it was done */
}

static int opens(struct conn *c) {
	struct pollfd p = {.fd = c->listener, .events = POLLIN};
	bool now = chance(2);
	int fd = -1, err = 0;
	if (serving) {
		MUST((!now || poll(&p, 1, -1) == 1) && (fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
		return fd;
	}
	MUST((fd = p.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (now ? SOCK_NONBLOCK : 0), 0)) >= 0);
	p.events = POLLOUT;
	MUST(connect(fd, (struct sockaddr *)&c->address, sizeof c->address) == 0 || errno == EINPROGRESS);
	MUST(poll(&p, 1, -1) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err}) == 0 && err == 0);
	MUST(fcntl(fd, F_SETFL, 0) == 0);
	return fd;
}

static void plan(struct conn *c, int round) {
	uint64_t x = mixed(seed * 1000003 + (uint64_t)((c - conns) * 100 + round)), k = 1 + mixed(x + 1) % 40;
	bool large = mixed(x + 2) % 3 == 0;
	c->turns = x % 3 != 0;
	for (uint64_t server = 0; server < 2; server++) {
		struct side *s = serving == server ? &c->out : &c->in;
		*s = (struct side){.key = x + 7 + server, .chunk = 2 + mixed(x + 3 + server) % (large ? 20000 : 200)};
		s->total = c->turns ? k * s->chunk : 2 + mixed(x + 5 + server) % (large ? 400000 : 4000);
		MUST((s->set = epoll_create1(EPOLL_CLOEXEC)) >= 0);
	}
	c->how = npool ? (enum how)draw(HOWS) : THREADS;
}

static void *master(void *arg) {
	struct conn *c = (me = arg)->conn;
	int i = (int)(c - conns);
	for (int round = 0; round < rounds; round++) {
		plan(c, round);
		me->what = serving ? "accepts" : "connects";
		c->in.fd = opens(c);
		MUST((c->out.fd = dup(c->in.fd)) >= 0);
		MUST(setsockopt(c->in.fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
		me->what = "waits";
		if (c->how == THREADS) {
			begin(READERS + i, reads, c);
			begin(WRITERS + i, writes, c);
			while ((plan_signals || plan_cancels) && !(workers[READERS + i].done && workers[WRITERS + i].done)) {
				doze(draw(3000));
				disturb(&workers[chance(2) ? READERS + i : WRITERS + i]);
			}
			for (int k = READERS + i; k <= WRITERS + i; k += SLOTS)
				MUST(pthread_join(workers[k].thread, NULL) == 0 && !(workers[k].what = NULL));
		} else {
			pthread_mutex_lock(&c->pool);
			c->pooled = true;
			rearm(c, EPOLL_CTL_ADD, true);
			pthread_mutex_unlock(&c->pool);
			pthread_mutex_lock(&c->mu);
			while (c->pooled)
				pthread_cond_wait(&c->turn, &c->mu);
			pthread_mutex_unlock(&c->mu);
		}
		me->what = "closes";
		MUST(close(c->in.set) == 0 && close(c->out.set) == 0 && close(c->in.fd) == 0 && close(c->out.fd) == 0);
	}
	me->done = true;
	me->what = NULL;
	return NULL;
}

/* --- processes --- */

static int listens(struct sockaddr_in *a) {
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	MUST(bind(l, (struct sockaddr *)a, sizeof *a) == 0 && listen(l, 16) == 0);
	MUST(getsockname(l, (struct sockaddr *)a, &(socklen_t){sizeof *a}) == 0);
	return l;
}

/* What a child does: it has a connection of its own. */
static void errand(void) {
	alarm(HANG);
	listener = listens(&address);
	open_pair();
	for (int i = 0; i < 5; i++)
		talk(i % 2 ? one : two, i % 2 ? two : one);
	close_pair();
	_exit(0);
}

static void forks(void) {
	int status;
	pid_t pid = fork();
	if (pid == 0 && chance(3))
		execl("/proc/self/exe", "mix", "errand", NULL);
	if (pid == 0)
		errand();
	MUST(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* Watches over all, until they are through. */
static void watch(void) {
	time_t since = time(NULL);
	for (long last = -1, over = 0; over < nconns;) {
		doze(500 + draw(3000));
		since = steps != last ? time(NULL) : since;
		last = steps;
		MUST(time(NULL) - since <= HANG);
		if (plan_forks && chance(20))
			forks();
		if (npool && chance(5))
			disturb(&workers[POOLED + draw((uint64_t)npool)]);
		for (int i = 0; i < nconns && npool && plan_cancels; i++) { /* who was cancelled may have taken an event */
			pthread_mutex_lock(&conns[i].pool);
			if (conns[i].pooled)
				rearm(&conns[i], EPOLL_CTL_MOD, true);
			pthread_mutex_unlock(&conns[i].pool);
		}
		over = 0;
		for (int i = 0; i < nconns; i++)
			over += workers[MASTERS + i].done;
	}
}

/* The server, which begins the client. */
static void side(void) {
	int stop[2], status = 0;
	nconns = 1 + (int)(mixed(seed + 1) % SLOTS);
	rounds = 1 + (int)(mixed(seed + 2) % 4);
	for (int i = 0; i < nconns; i++)
		conns[i].listener = listens(&conns[i].address);
	pid_t client = fork();
	serving = client != 0;
	for (int i = 0; i < nconns && !serving; i++)
		close(conns[i].listener);
	for (int i = 0; i < WORKERS; i++)
		workers[i].rnd = seed * 2 + serving;
	npool = chance(2) ? 1 + (int)draw(POOL) : 0;
	plan_signals = chance(3), plan_cancels = chance(3), plan_forks = chance(4), plan_pauses = !chance(3);
	handler(SIGUSR1, on_restart, SA_RESTART);
	handler(SIGUSR2, on_break, 0);
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = SLOTS};
	MUST((pool_set = epoll_create1(EPOLL_CLOEXEC)) >= 0 && pipe2(stop, O_CLOEXEC) == 0);
	MUST(epoll_ctl(pool_set, EPOLL_CTL_ADD, stop[0], &e) == 0);
	for (int i = 0; i < nconns; i++) {
		conns[i].mu = conns[i].pool = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		conns[i].turn = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
		begin(MASTERS + i, master, &conns[i]);
	}
	for (int i = 0; i < npool; i++)
		begin(POOLED + i, pooled, NULL);
	watch();
	MUST(write(stop[1], "x", 1) == 1);
	for (int i = POOLED; i < HEAD; i++)
		MUST(!workers[i].run || pthread_join(workers[i].thread, NULL) == 0);
	MUST(!serving || (waitpid(client, &status, 0) == client && status == 0));
	exit(0);
}

int main(int argc, char **argv) {
	test = "mix";
	setvbuf(stdout, NULL, _IONBF, 0);
	me = &workers[HEAD];
	me->what = "watches";
	if (argc == 2 && strcmp(argv[1], "errand") == 0)
		errand();
	for (int i = 1, status = 0; i < argc; i++) {
		seed = strtoul(argv[i], NULL, 10);
		pid_t pid = fork();
		if (pid == 0)
			side();
		if (waitpid(pid, &status, 0) != pid || status != 0) {
			printf("FAIL seed %lu: fork %d, status %x (%m)\n", seed, pid, status);
			return 1;
		}
	}
	printf("mix: ok\n");
	return 0;
}
