/* Ends: of a connection that nobody waits for, and of a daemon while the program is in a call. */
#include <stdlib.h>

#include "roles.h"

/* An end that nobody waits for is an orderly one all the same, and goes on while the program does something else. */
static void leaves(char **arg)
{
	(void)arg;
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_conn *c[3], *s[3];
	edge_region *r;
	edge_op op;
	edge_completion done;
	edge_notification n;
	edge_work w = { .kind = EDGE_SEND, .inline_data = "x", .inline_size = 1 };
	OK(edge_listen(b, service(true), &l, WAIT));
	OK(edge_register(b, 4096, &r, WAIT));
	for (int i = 0; i < 3; i++) {
		meet(a, b, l, &c[i], &s[i]);
		OK(edge_post(c[i], &w, &op)); /* it waits for a buffer */
		IS(edge_conn_close(c[i], 0), EDGE_ERR_AGAIN);
		IS(edge_post(c[i], &w, NULL), EDGE_ERR_CLOSED);
		IS(edge_conn_close(c[i], 0), EDGE_ERR_AGAIN);
	}
	edge_conn_free(c[0]); /* which does not wait either */
	IS(edge_notify_wait(s[0], &n, WAIT), EDGE_ERR_RESET);
	IS(edge_conn_close(c[1], 50), EDGE_ERR_TIMEOUT);
	IS(edge_notify_wait(s[1], &n, WAIT), EDGE_ERR_RESET);
	OK(edge_post(s[2], &(edge_work){ .kind = EDGE_RECEIVE, .local = r, .size = 8, .context = r }, NULL));
	while (edge_conn_error(c[2]) == 0)
		edge_device_poll(a);
	IS(edge_completions_wait(b, &done, 1, WAIT), 1);
	CHECK(done.err == 0 && done.size == 1);
	IS(edge_notify_wait(s[2], &n, WAIT), EDGE_ERR_PEER_CLOSED);
	CHECK(edge_op_done(&op));
	OK(edge_op_error(&op));
	IS(edge_conn_close(c[2], 0), 0);
	IS(edge_conn_close(c[2], 0), EDGE_ERR_CLOSED);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
	for (int i = 0; i < 3; i++)
		edge_conn_free(s[i]);
	edge_conn_free(c[1]);
	edge_conn_free(c[2]);
}

static int changes[2];

static void on_change(void *arg, int err)
{
	CHECK(arg == changes && (err == 0) == (changes[0] > changes[1])); /* lost, then found */
	changes[err == 0]++;
}

/* The daemon restarts while the program is in one call: it is told of both. */
static void blocked(char **arg)
{
	(void)arg;
	edge_device *d;
	edge_config cfg = { .size = sizeof cfg, .wait = EDGE_BLOCK, .on_change = on_change, .arg = changes };
	edge_listener *l;
	edge_conn *c;
	OK(edge_open(&d, &cfg, WAIT));
	OK(edge_listen(d, "kept", &l, WAIT));
	say("ready");
	OK(edge_accept(l, &c, EDGE_FOREVER));
	CHECK(changes[0] == 1 && changes[1] == 1);
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* A listener is closed while a new daemon is asked to offer its service. */
static void withdraws(char **arg)
{
	(void)arg;
	edge_device *d;
	edge_config cfg = { .size = sizeof cfg, .queue_depth = 64, .on_change = on_change, .arg = changes };
	edge_listener *l;
	alarm(20);
	OK(edge_open(&d, &cfg, WAIT));
	OK(edge_listen(d, "kept", &l, WAIT));
	edge_region *r;
	IS(edge_register(d, 4096, &r, WAIT), EDGE_ERR_DAEMON_DOWN);
	while (changes[1] == 0)
		edge_device_poll(d);
	edge_listener_close(l);
	edge_device_close(d, 0);
}

/* The daemon is lost as soon as it has answered, so many times: the next one offers the service. */
static void answered(char **arg)
{
	for (int i = 0; i < atoi(arg[0]); i++) {
		edge_device *d = open_device(64, EDGE_BLOCK);
		edge_listener *l;
		alarm(10);
		OK(edge_listen(d, "kept", &l, EDGE_FOREVER));
		edge_listener_close(l);
		edge_device_close(d, 0);
	}
}

static const role roles[] = {
	{ "leaves", leaves, 0 }, { "blocked", blocked, 0 }, { "withdraws", withdraws, 0 }, { "answered", answered, 1 },
};

int main(int argc, char **argv)
{
	return play("ends", roles, sizeof roles / sizeof *roles, argc, argv);
}
