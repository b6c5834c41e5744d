/* In the place of libedge: it tells who we are, and has nobody to connect to. Included by ends.h alone. */
#include "nomemory.h"

struct edge_device { int fd; };
static struct edge_device device;

int edge_open(edge_device **d, const edge_config *cfg, int ms) { (void)cfg, (void)ms; *d = &device; return 0; }
void edge_device_close(edge_device *d, int ms) { (void)d, (void)ms; }
int edge_device_error(edge_device *d) { (void)d; return 0; }
int edge_device_fd(edge_device *d) { return d->fd; }
static _Atomic bool armed; /* the descriptor would tell of something */
int edge_device_arm(edge_device *d) { (void)d; armed = true; return 1; }
int edge_device_poll(edge_device *d) { (void)d; armed = false; return 0; }
const char *edge_device_node(edge_device *d) { (void)d; return "0011223344556677"; }
const char *edge_device_name(edge_device *d) { (void)d; return "here"; }
int edge_changed(edge_device *d, void **contexts, size_t n) { (void)d, (void)contexts, (void)n; return 0; }
int edge_listen(edge_device *d, const char *service, edge_listener **l, int ms)
{
	(void)d, (void)service, (void)ms;
	*l = (edge_listener *)(void *)&device;
	return 0;
}
void edge_listener_watch(edge_listener *l, void *context) { (void)l, (void)context; }
void edge_listener_close(edge_listener *l) { (void)l; }
static int unlistened = EDGE_ERR_AGAIN;
int edge_listener_next(edge_listener *l, edge_request **r, int ms) { (void)l, (void)r, (void)ms; return unlistened; }
const char *edge_request_peer(const edge_request *r) { (void)r; return ""; }
int edge_request_refuse(edge_request *r, const char *why) { (void)r, (void)why; return 0; }
int edge_request_stream(const edge_request *r, const void **p, size_t *n) { (void)r, (void)p, (void)n; return 0; }
int edge_request_accept_stream(edge_request *r, edge_stream **s) { (void)r, (void)s; return EDGE_ERR_RESET; }
int edge_stream_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o,
                           edge_stream **s, int ms)
{
	(void)d, (void)peer, (void)service, (void)o, (void)s, (void)ms;
	return EDGE_ERR_PEER_UNKNOWN;
}
void edge_stream_watch(edge_stream *s, void *context) { (void)s, (void)context; }
int edge_stream_error(edge_stream *s) { (void)s; return EDGE_ERR_RESET; }
int edge_stream_shutdown(edge_stream *s) { (void)s; return 0; }
void edge_stream_reset(edge_stream *s) { (void)s; }
void edge_stream_close(edge_stream *s, int ms) { (void)s, (void)ms; }
ssize_t edge_stream_read(edge_stream *s, void *p, size_t n, int ms) { (void)s, (void)p, (void)n, (void)ms; return 0; }
ssize_t edge_stream_write(edge_stream *s, const void *p, size_t n, int ms)
{
	(void)s, (void)p, (void)n, (void)ms;
	return EDGE_ERR_RESET;
}
const void *edge_request_data(const edge_request *r, size_t *n) { (void)r; *n = 0; return NULL; }
