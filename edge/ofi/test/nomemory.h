/* In the place of libedge where there is a stream alone: it has no connections, and registers no memory. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

uint64_t edge_device_features(edge_device *d) { return 0; }
int edge_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o, edge_conn **c,
                    int ms)
{
	return EDGE_ERR_PEER_UNKNOWN;
}
int edge_conn_wait(edge_conn *c, int ms) { return EDGE_ERR_RESET; }
const void *edge_conn_data(const edge_conn *c, size_t *size) { return NULL; }
int edge_conn_error(edge_conn *c) { return EDGE_ERR_RESET; }
int edge_conn_abort(edge_conn *c) { return 0; }
void edge_conn_free(edge_conn *c) { }
void edge_request_join(edge_request *r, uint32_t domain) { }
int edge_request_accept(edge_request *r, const void *data, size_t size, edge_conn **c, int ms)
{
	return EDGE_ERR_RESET;
}
int edge_post(edge_conn *c, const edge_work *w, edge_op *op) { return EDGE_ERR_RESET; }
int edge_completions_wait(edge_device *d, edge_completion *c, size_t n, int ms) { return EDGE_ERR_AGAIN; }
int edge_share(edge_region *r, uint32_t domain, int perm, size_t off, size_t size, uint32_t high, uint64_t base,
               uint64_t *key, int ms)
{
	return EDGE_ERR_VERSION;
}
int edge_unshare(edge_device *d, uint64_t key, int ms) { return 0; }
int edge_register(edge_device *d, size_t size, edge_region **r, int ms) { return EDGE_ERR_VERSION; }
int edge_register_memfd(edge_device *d, int memfd, void *p, size_t size, edge_region **r, int ms)
{
	return EDGE_ERR_VERSION;
}
int edge_region_close(edge_region *r) { return 0; }
int edge_region_error(edge_region *r) { return EDGE_ERR_STALE; }
void *edge_region_bytes(const edge_region *r) { return NULL; }
