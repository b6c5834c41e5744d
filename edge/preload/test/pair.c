/*
 * pair serve|connect ADDRESS PORT [-m block|poll|select|epoll|edge] [-n CONNS] [-b BYTES] [-s SEED] [-f] [-c]
 *
 * Both sides send BYTES pseudo-random bytes on each connection, in pieces of random size by random functions, and
 * compare what they receive byte by byte; then they close their writing half and read the other's end. -f: the server
 * forks a child for each connection (blocking). -c: connections may be cut, but no byte may be wrong before. The last
 * line says how many connections were whole and cut, and how many used a stream: no byte of these passed over TCP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1024, PIECE = 96 << 10, HEAD = 16 };

static const char *mode = "poll";
static int conns = 4;
static uint64_t bytes = 4 << 20, seed = 1;
static bool forking, cuts, serving;
static int whole, cut, streams;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

struct conn {
	int fd;
	uint64_t seed, sent, got, total;
	uint64_t rnd[2]; /* of writing, of reading */
	bool shut, end, connecting;
	_Atomic bool cut; /* of two threads the one that is left closes */
	bool threads;
	char head[HEAD];
};

static uint64_t mix(uint64_t x) {
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t draw(uint64_t *r) { return *r = mix(*r); }

/* The byte at position p of what a side sends. */
static unsigned char content(uint64_t s, bool server, uint64_t p) {
	return (unsigned char)(mix(s * 2 + server + (p >> 3) * 0x10001) >> (p & 7) * 8);
}

static void die(const struct conn *c, const char *what) {
	printf("FAIL %s %s seed %llu sent %llu got %llu: %s (%s)\n", serving ? "server" : "client", mode,
	       (unsigned long long)c->seed, (unsigned long long)c->sent, (unsigned long long)c->got, what, strerror(errno));
	fflush(stdout);
	_exit(1);
}

static void over(struct conn *c, bool good) {
	struct tcp_info i = {0};
	socklen_t n = sizeof i;
	getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &i, &n);
	if (!good && !cuts)
		die(c, "the connection was cut");
	if (!good && c->threads) {
		c->cut = true;
		return;
	}
	pthread_mutex_lock(&mu);
	good ? whole++ : cut++;
	streams += i.tcpi_bytes_sent == 0 && i.tcpi_bytes_received <= 1;
	pthread_mutex_unlock(&mu);
	close(c->fd);
	c->fd = -1;
}

static bool lost(int err) { return err == ECONNRESET || err == EPIPE || err == ETIMEDOUT; }

/* One write. false: it would block, or everything was sent. */
static bool step_out(struct conn *c) {
	static __thread char buf[PIECE];
	if (c->shut || (serving && c->got < HEAD))
		return false;
	uint64_t left = c->total - c->sent;
	uint64_t d = draw(&c->rnd[0]);
	size_t n = d % 4 ? d / 4 % 300 + 1 : d / 4 % PIECE + 1;
	n = n < left ? n : left;
	for (size_t i = 0; i < n; i++)
		buf[i] = c->sent + i < HEAD && !serving ? c->head[c->sent + i]
		                                          : (char)content(c->seed, serving, c->sent + i);
	struct iovec v[3] = {{buf, n / 3}, {buf + n / 3, n / 2 - n / 3}, {buf + n / 2, n - n / 2}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
	ssize_t r;
	switch (d >> 40 & 3) {
	case 0: r = write(c->fd, buf, n); break;
	case 1: r = send(c->fd, buf, n, MSG_NOSIGNAL); break;
	case 2: r = writev(c->fd, v, 3); break;
	default: r = sendmsg(c->fd, &m, MSG_NOSIGNAL); break;
	}
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (r < 0) {
		if (!lost(errno))
			die(c, "write");
		over(c, false);
		return false;
	}
	c->sent += (uint64_t)r;
	if (c->sent == c->total) {
		c->shut = true;
		if (shutdown(c->fd, SHUT_WR) && !cuts)
			die(c, "shutdown");
		return false;
	}
	return true;
}

static void check(struct conn *c, const char *p, size_t n) {
	for (size_t i = 0; i < n; i++, c->got++) {
		if (serving && c->got < HEAD) {
			c->head[c->got] = p[i];
			if (c->got == HEAD - 1) {
				memcpy(&c->seed, c->head, 8);
				memcpy(&c->total, c->head + 8, 8);
			}
			continue;
		}
		if (c->got >= c->total)
			die(c, "more bytes than were sent");
		if ((unsigned char)p[i] != content(c->seed, !serving, c->got))
			die(c, "a wrong byte");
	}
}

/* One read. false: it would block, or the end. */
static bool step_in(struct conn *c) {
	static __thread char buf[PIECE], peeked[PIECE];
	if (c->end || c->fd < 0)
		return false;
	uint64_t d = draw(&c->rnd[1]);
	size_t n = d % 4 ? d / 4 % 300 + 1 : d / 4 % PIECE + 1;
	struct iovec v[2] = {{buf, n / 2}, {buf + n / 2, n - n / 2}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	ssize_t r, p = 0;
	switch (d >> 40 & 7) {
	case 0: r = read(c->fd, buf, n); break;
	case 1: r = recv(c->fd, buf, n, 0); break;
	case 2: r = readv(c->fd, v, 2); break;
	case 3: r = recvmsg(c->fd, &m, 0); break;
	case 4:
		p = recv(c->fd, peeked, n, MSG_PEEK);
		r = p > 0 ? recv(c->fd, buf, (size_t)p, MSG_WAITALL) : p;
		if (p > 0 && (r != p || memcmp(buf, peeked, (size_t)p)))
			die(c, "what was peeked is not what was read");
		break;
	default: r = recvfrom(c->fd, buf, n, 0, NULL, NULL); break;
	}
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (r > 0) {
		check(c, buf, (size_t)r);
		return true;
	}
	if (r < 0 && !lost(errno))
		die(c, "read");
	if (r < 0 || c->got != c->total || c->total == 0) {
		errno = r < 0 ? errno : 0;
		over(c, false);
		return false;
	}
	c->end = true;
	return false;
}

static void start(struct conn *c, int fd, int index) {
	*c = (struct conn){.fd = fd, .seed = seed * 1000003 + (uint64_t)index, .total = bytes};
	c->rnd[0] = mix(seed + (uint64_t)index * 2 + serving);
	c->rnd[1] = mix(c->rnd[0]);
	memcpy(c->head, &c->seed, 8);
	memcpy(c->head + 8, &c->total, 8);
	c->threads = !strcmp(mode, "block") || forking;
	if (serving)
		c->total = UINT64_MAX;
}

/* --- blocking: a thread for each direction --- */

static void *writer(void *p) {
	struct conn *c = p;
	while (!c->shut && !c->cut)
		step_out(c);
	return NULL;
}

static void blocking(struct conn *c) {
	if (serving) /* the head says how much there is to send */
		while (c->got < HEAD && !c->cut)
			step_in(c);
	pthread_t t;
	pthread_create(&t, NULL, writer, c);
	while (!c->end && !c->cut)
		step_in(c);
	if (c->cut) /* a writer that waits for room learns of it */
		shutdown(c->fd, SHUT_RDWR);
	pthread_join(t, NULL);
	c->threads = false;
	over(c, !c->cut);
}

static void *blocking_thread(void *p) {
	blocking(p);
	return NULL;
}

/* --- events --- */

static struct conn all[MOST];
static int nall;

static bool live(struct conn *c) {
	if (c->fd >= 0 && c->end && c->shut)
		over(c, true);
	return c->fd >= 0;
}

static bool wants_out(const struct conn *c) { return !c->shut && !(serving && c->got < HEAD); }

static void serve_events(struct conn *c, bool in, bool out, bool drain) {
	if (c->connecting && out) {
		int err = 0;
		getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err});
		errno = err;
		if (err)
			die(c, "connect");
		c->connecting = false;
	}
	int turns = 4;
	while (in && (drain || turns--) && step_in(c))
		;
	for (turns = 4; (out || drain) && c->fd >= 0 && (drain || turns--) && step_out(c);)
		;
}

static void round_poll(int listener) {
	struct pollfd p[MOST + 1];
	int at[MOST + 1], n = 0;
	for (int i = 0; i < nall; i++)
		if (live(&all[i])) {
			short want = (short)((all[i].end ? 0 : POLLIN) | (wants_out(&all[i]) ? POLLOUT : 0));
			p[n] = (struct pollfd){.fd = all[i].fd, .events = want};
			at[n++] = i;
		}
	p[n] = (struct pollfd){.fd = listener, .events = POLLIN};
	if (poll(p, (nfds_t)n + (listener >= 0), 30000) == 0)
		die(&all[0], "nothing happened for 30 s");
	for (int k = 0; k < n; k++)
		serve_events(&all[at[k]], p[k].revents & (POLLIN | POLLHUP | POLLERR), p[k].revents & (POLLOUT | POLLERR),
		             false);
}

static void round_select(int listener) {
	fd_set r, w;
	FD_ZERO(&r);
	FD_ZERO(&w);
	int top = listener;
	if (listener >= 0)
		FD_SET(listener, &r);
	for (int i = 0; i < nall; i++)
		if (live(&all[i])) {
			if (!all[i].end)
				FD_SET(all[i].fd, &r);
			if (wants_out(&all[i]))
				FD_SET(all[i].fd, &w);
			top = all[i].fd > top ? all[i].fd : top;
		}
	struct timeval t = {.tv_sec = 30};
	if (select(top + 1, &r, &w, NULL, &t) == 0)
		die(&all[0], "nothing happened for 30 s");
	for (int i = 0; i < nall; i++)
		if (all[i].fd >= 0)
			serve_events(&all[i], FD_ISSET(all[i].fd, &r), FD_ISSET(all[i].fd, &w), false);
}

static void round_epoll(int ep, int listener, bool edges) {
	struct epoll_event e[16];
	for (int i = 0; i < nall; i++)
		if (live(&all[i]) && !edges) {
			struct epoll_event m = {.events = (all[i].end ? 0 : EPOLLIN) | (wants_out(&all[i]) ? EPOLLOUT : 0),
			                        .data.u32 = (uint32_t)i};
			if (epoll_ctl(ep, EPOLL_CTL_MOD, all[i].fd, &m))
				die(&all[i], "epoll_ctl");
		}
	int n = epoll_wait(ep, e, 16, 30000);
	if (n == 0)
		die(&all[0], "nothing happened for 30 s");
	(void)listener;
	for (int k = 0; k < n; k++)
		if (e[k].data.u32 < MOST && all[e[k].data.u32].fd >= 0)
			serve_events(&all[e[k].data.u32], edges || e[k].events & (EPOLLIN | EPOLLHUP | EPOLLERR),
			             edges || e[k].events & (EPOLLOUT | EPOLLERR), edges);
	for (int i = 0; i < nall; i++)
		live(&all[i]);
}

static void take(int listener, int ep, bool edges) {
	for (int fd; nall < conns && (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0; nall++) {
		start(&all[nall], fd, nall);
		struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | (edges ? EPOLLET : 0), .data.u32 = (uint32_t)nall};
		if (ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e))
			die(&all[nall], "epoll_ctl");
	}
}

static void events(int listener, const struct sockaddr_in *to) {
	bool edges = !strcmp(mode, "edge"), epolls = edges || !strcmp(mode, "epoll");
	int ep = epolls ? epoll_create1(0) : -1;
	if (listener >= 0) {
		fcntl(listener, F_SETFL, O_NONBLOCK);
		struct epoll_event e = {.events = EPOLLIN, .data.u32 = MOST};
		if (ep >= 0)
			epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e);
	}
	for (; listener < 0 && nall < conns; nall++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		start(&all[nall], fd, nall);
		all[nall].connecting = true;
		if (connect(fd, (const struct sockaddr *)to, sizeof *to) && errno != EINPROGRESS)
			die(&all[nall], "connect");
		struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | (edges ? EPOLLET : 0), .data.u32 = (uint32_t)nall};
		if (ep >= 0)
			epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	}
	while (whole + cut < conns) {
		int listening = listener >= 0 && nall < conns ? listener : -1;
		if (epolls)
			round_epoll(ep, listening, edges);
		else if (!strcmp(mode, "select"))
			round_select(listening);
		else
			round_poll(listening);
		if (listening >= 0)
			take(listening, ep, edges);
		for (int i = 0; i < nall; i++)
			live(&all[i]);
	}
}

static void threads(int listener, const struct sockaddr_in *to) {
	pthread_t t[MOST];
	for (int i = 0; i < conns; i++) {
		int fd = listener >= 0 ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
		start(&all[i], fd, i);
		if (listener < 0 && connect(fd, (const struct sockaddr *)to, sizeof *to))
			die(&all[i], "connect");
		if (forking && listener >= 0) {
			if (fork() == 0) {
				close(listener);
				blocking(&all[i]);
				printf("child whole %d cut %d streams %d\n", whole, cut, streams);
				fflush(stdout);
				_exit(streams ? 0 : 9);
			}
			close(fd);
			continue;
		}
		pthread_create(&t[i], NULL, blocking_thread, &all[i]);
	}
	for (int i = 0; i < conns; i++)
		if (forking && listener >= 0) {
			int status = 0;
			wait(&status);
			whole += WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9);
			streams += status == 0;
		} else {
			pthread_join(t[i], NULL);
		}
}

int main(int argc, char **argv) {
	for (int o; (o = getopt(argc, argv, "m:n:b:s:fc")) > 0;)
		switch (o) {
		case 'm': mode = optarg; break;
		case 'n': conns = atoi(optarg); break;
		case 'b': bytes = strtoull(optarg, NULL, 10); break;
		case 's': seed = strtoull(optarg, NULL, 10); break;
		case 'f': forking = true; break;
		case 'c': cuts = true; break;
		default: return 2;
		}
	if (argc - optind != 3 || conns > MOST || bytes < HEAD)
		return 2;
	serving = !strcmp(argv[optind], "serve");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[optind + 2]))};
	inet_pton(AF_INET, argv[optind + 1], &a.sin_addr);
	int listener = -1;
	if (serving) {
		listener = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
		if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 512) ||
		    getsockname(listener, (struct sockaddr *)&a, &(socklen_t){sizeof a})) {
			perror("listen");
			return 1;
		}
		printf("ready %d\n", ntohs(a.sin_port));
		fflush(stdout);
	}
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(mode, "block") || forking)
		threads(listener, &a);
	else
		events(listener, &a);
	printf("%s %s: whole %d cut %d streams %d\n", serving ? "server" : "client", mode, whole, cut, streams);
	return 0;
}
