/* What fi_getinfo tells: one fi_info, fitted to the hints. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define VERSION 0x650002 /* of the provider and of what it puts into streams: FI_PROTO is no number of libfabric's */
#define PROTOCOL (FI_PROV_SPECIFIC | 0x65646765)
#define TX_CAPS (FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_FENCE)
#define RX_CAPS (FI_MSG | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT)
#define WHERE (FI_LOCAL_COMM | FI_REMOTE_COMM)
/* The owner performs all in the order in which it comes, but samples what a long read reads while it sends.
 * FI_ORDER_WAR is left out for ofi_rxm, which hands it on: its atomics are messages, and writes overtake those. */
#define ORDER (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAW | \
               FI_ORDER_SAS | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | \
               FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define RX_FLAGS FI_COMPLETION

enum { OLD_MODES = FI_MR_BASIC | FI_MR_SCALABLE, OUR_KEYS = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED };

/* Says which of the hints cannot be kept. */
static bool fails(bool bad, const char *what)
{
	if (bad)
		FI_INFO(&edge_provider, FI_LOG_CORE, "hints: %s is not supported\n", what);
	return bad;
}

/* Programs give a direction all capabilities: those of the other one do not apply to it. */
static bool tx_fits(const struct fi_tx_attr *a)
{
	return a == NULL || !(fails(a->caps & ~(CAPS | WHERE), "tx_attr.caps") ||
	    fails(a->op_flags & ~TX_FLAGS, "tx_attr.op_flags") || fails(a->msg_order & ~ORDER, "tx_attr.msg_order") ||
	    fails(a->comp_order != 0, "tx_attr.comp_order") || fails(a->inject_size > INJECT, "tx_attr.inject_size") ||
	    fails(a->size > TX_MOST, "tx_attr.size") || fails(a->iov_limit > IOVS, "tx_attr.iov_limit") ||
	    fails(a->rma_iov_limit > 1, "tx_attr.rma_iov_limit"));
}

static bool rx_fits(const struct fi_rx_attr *a)
{
	return a == NULL || !(fails(a->caps & ~(CAPS | WHERE), "rx_attr.caps") ||
	    fails(a->op_flags & ~RX_FLAGS, "rx_attr.op_flags") || fails(a->msg_order & ~ORDER, "rx_attr.msg_order") ||
	    fails(a->comp_order & ~FI_ORDER_STRICT, "rx_attr.comp_order") || fails(a->size > RX_MOST, "rx_attr.size") ||
	    fails(a->total_buffered_recv != 0, "rx_attr.total_buffered_recv") ||
	    fails(a->iov_limit > IOVS, "rx_attr.iov_limit"));
}

static bool ep_fits(const struct fi_ep_attr *a)
{
	return a == NULL || !(fails(a->type != FI_EP_UNSPEC && a->type != FI_EP_MSG, "an endpoint type but FI_EP_MSG") ||
	    fails(a->protocol != FI_PROTO_UNSPEC && a->protocol != PROTOCOL, "ep_attr.protocol") ||
	    fails(a->max_order_war_size > ORDERED, "ep_attr.max_order_war_size") ||
	    fails(a->tx_ctx_cnt > 1, "several or shared transmit contexts") ||
	    fails(a->rx_ctx_cnt > 1 && a->rx_ctx_cnt != FI_SHARED_CONTEXT, "several receive contexts") ||
	    fails(a->auth_key_size > 0, "ep_attr.auth_key"));
}

static bool domain_fits(const struct fi_domain_attr *a)
{
	return a == NULL || !(fails(a->name != NULL && strcmp(a->name, self_name()) != 0, "domain_attr.name") ||
	    fails(a->data_progress == FI_PROGRESS_AUTO, "FI_PROGRESS_AUTO of data") ||
	    fails(a->control_progress == FI_PROGRESS_AUTO, "FI_PROGRESS_AUTO of control") ||
	    fails(a->cq_data_size > 8, "domain_attr.cq_data_size") ||
	    fails(a->mr_key_size > 8, "domain_attr.mr_key_size") ||
	    fails(a->mr_iov_limit > 1, "domain_attr.mr_iov_limit") ||
	    fails(a->auth_key_size > 0, "domain_attr.auth_key") || fails(a->caps & ~WHERE, "domain_attr.caps"));
}

static bool fits(const struct fi_info *h)
{
	return h == NULL || (!(fails(h->caps & ~(CAPS | WHERE), "caps") ||
	    fails(h->addr_format != FI_FORMAT_UNSPEC && h->addr_format != FI_SOCKADDR && h->addr_format != FI_SOCKADDR_IN6,
	          "an addr_format but FI_SOCKADDR_IN6") ||
	    fails(h->fabric_attr != NULL && h->fabric_attr->name != NULL && strcmp(h->fabric_attr->name, "edge") != 0,
	          "fabric_attr.name")) &&
	    tx_fits(h->tx_attr) && rx_fits(h->rx_attr) && ep_fits(h->ep_attr) && domain_fits(h->domain_attr));
}

/* What was asked for, with what it means where no direction is named; all without hints. */
static uint64_t caps_of(const struct fi_info *h)
{
	uint64_t c = h == NULL || (h->caps & ~WHERE) == 0 ? CAPS : h->caps;
	if ((c & FI_MSG) && !(c & (FI_SEND | FI_RECV)))
		c |= FI_SEND | FI_RECV;
	if ((c & (FI_RMA | FI_ATOMIC)) && !(c & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		c |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	return c | WHERE;
}

static size_t or(size_t wanted, size_t usual)
{
	return wanted != 0 ? wanted : usual;
}

/* The order of operations after messages costs the way of native.c, which is had where keys are the provider's: so it
 * is not promised there unless the program asks for it. */
static uint64_t order(const struct fi_info *h)
{
	const uint64_t after = FI_ORDER_RAS | FI_ORDER_WAS;
	int given = h != NULL && h->domain_attr != NULL ? h->domain_attr->mr_mode : 0;
	bool ours = given == FI_MR_BASIC || (given & OUR_KEYS) == OUR_KEYS;
	bool asked = h != NULL && h->tx_attr != NULL && (h->tx_attr->msg_order & after);
	return ours && !asked ? ORDER & ~after : ORDER;
}

static void fill_domain(struct fi_domain_attr *a, uint32_t version, const struct fi_domain_attr *h)
{
	int mode = h == NULL ? 0 : h->mr_mode & OLD_MODES, given = h == NULL ? 0 : h->mr_mode;
	if (mode == 0 && (given & OUR_KEYS) == OUR_KEYS)
		mode = given & (OUR_KEYS | FI_MR_LOCAL);
	if (mode == 0 && FI_VERSION_LT(version, FI_VERSION(1, 5)))
		mode = FI_MR_SCALABLE; /* before 1.5 an answer is one of the two */
	a->threading = h != NULL && h->threading != FI_THREAD_UNSPEC ? h->threading : FI_THREAD_SAFE;
	a->control_progress = a->data_progress = FI_PROGRESS_MANUAL;
	a->resource_mgmt = FI_RM_ENABLED;
	a->av_type = h != NULL ? h->av_type : FI_AV_UNSPEC;
	a->mr_mode = mode == OLD_MODES ? FI_MR_SCALABLE : mode;
	a->mr_key_size = a->cq_data_size = 8;
	a->cq_cnt = a->cntr_cnt = a->ep_cnt = 4096;
	a->tx_ctx_cnt = a->rx_ctx_cnt = 4096;
	a->max_ep_tx_ctx = a->max_ep_rx_ctx = a->max_ep_srx_ctx = 1;
	a->mr_iov_limit = 1;
	a->caps = WHERE;
	a->max_err_data = CM_DATA;
	a->mr_cnt = 1 << 20;
}

static struct fi_info *fill(uint32_t version, const struct fi_info *h)
{
	struct fi_info *i = fi_allocinfo();
	if (i == NULL)
		return NULL;
	const struct fi_tx_attr *tx = h != NULL ? h->tx_attr : NULL;
	const struct fi_rx_attr *rx = h != NULL ? h->rx_attr : NULL;
	uint64_t caps = caps_of(h);
	i->caps = caps;
	i->addr_format = FI_SOCKADDR_IN6;
	*i->tx_attr = (struct fi_tx_attr){ .caps = caps & TX_CAPS, .op_flags = tx != NULL ? tx->op_flags : 0,
		.msg_order = order(h), .inject_size = INJECT, .size = or(tx != NULL ? tx->size : 0, 256), .iov_limit = IOVS,
		.rma_iov_limit = 1 };
	*i->rx_attr = (struct fi_rx_attr){ .caps = caps & RX_CAPS, .op_flags = rx != NULL ? rx->op_flags : 0,
		.msg_order = order(h), .comp_order = FI_ORDER_STRICT, .size = or(rx != NULL ? rx->size : 0, 256),
		.iov_limit = IOVS };
	bool shared = h != NULL && h->ep_attr != NULL && h->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
	*i->ep_attr = (struct fi_ep_attr){ .type = FI_EP_MSG, .protocol = PROTOCOL, .protocol_version = 1,
		.max_msg_size = INT64_MAX, .max_order_raw_size = SIZE_MAX, .max_order_war_size = ORDERED,
		.max_order_waw_size = SIZE_MAX, .tx_ctx_cnt = 1, .rx_ctx_cnt = shared ? FI_SHARED_CONTEXT : 1 };
	fill_domain(i->domain_attr, version, h != NULL ? h->domain_attr : NULL);
	i->domain_attr->name = strdup(self_name());
	i->fabric_attr->name = strdup("edge");
	i->fabric_attr->prov_version = VERSION;
	i->fabric_attr->api_version = version;
	if (i->domain_attr->name == NULL || i->fabric_attr->name == NULL) {
		fi_freeinfo(i);
		return NULL;
	}
	return i;
}

static int port_of(const char *service)
{
	char *rest;
	long n = service == NULL ? 0 : strtol(service, &rest, 10);
	if (service != NULL && (*rest != 0 || rest == service || n < 0 || n > 65535)) {
		FI_INFO(&edge_provider, FI_LOG_CORE, "service %s is no number of a port\n", service);
		return -FI_EINVAL;
	}
	return (int)n;
}

static int put_address(void **to, size_t *size, const address *a)
{
	*to = malloc(sizeof *a);
	if (*to == NULL)
		return -FI_ENOMEM;
	memcpy(*to, a, sizeof *a);
	*size = sizeof *a;
	return 0;
}

/* An address of the hints: ours, or with no host in it, is our own with that port. */
static int own_address(address *a, const struct fi_info *h)
{
	const address *given = h != NULL ? h->src_addr : NULL;
	self_address(a, 0);
	if (given == NULL || h->src_addrlen < sizeof *given || given->sin6_family != AF_INET6)
		return given == NULL ? 0 : -FI_ENODATA;
	a->sin6_port = given->sin6_port;
	return is_self(given) || IN6_IS_ADDR_UNSPECIFIED(&given->sin6_addr) ? 0 : -FI_ENODATA;
}

static int addresses(struct fi_info *i, const char *node, const char *service, uint64_t flags, const struct fi_info *h)
{
	address source, dest;
	bool to = false;
	int port = port_of(service), err = port < 0 ? port : own_address(&source, h);
	if (err != 0)
		return err;
	if (flags & FI_SOURCE) {
		if (node != NULL && (node_address(&dest, node, port) != 0 || !is_self(&dest)))
			return -FI_ENODATA;
		if (service != NULL)
			source.sin6_port = htons((uint16_t)port);
	} else if (node != NULL || service != NULL) {
		to = true;
		err = node_address(&dest, node != NULL ? node : self_name(), port);
	}
	if (err == 0 && !to && h != NULL && h->dest_addr != NULL) {
		if (h->dest_addrlen < sizeof dest || ((const address *)h->dest_addr)->sin6_family != AF_INET6)
			return -FI_ENODATA;
		to = true;
		memcpy(&dest, h->dest_addr, sizeof dest);
	}
	if (err == 0)
		err = put_address(&i->src_addr, &i->src_addrlen, &source);
	if (err == 0 && to)
		err = put_address(&i->dest_addr, &i->dest_addrlen, &dest);
	return err;
}

static int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info)
{
	int err = self_load();
	if (err != 0)
		return err;
	if (!fits(hints))
		return -FI_ENODATA;
	struct fi_info *i = fill(version, hints);
	if (i == NULL)
		return -FI_ENOMEM;
	err = addresses(i, node, service, flags, hints);
	if (err == 0)
		*info = i;
	else
		fi_freeinfo(i);
	return err;
}

static void cleanup(void)
{
	addresses_free();
}

FI_EXT_INI
{
	edge_provider.version = VERSION;
	edge_provider.getinfo = getinfo;
	edge_provider.fabric = fabric_open;
	edge_provider.cleanup = cleanup;
	/* ofi_rxm of libfabric 1.17 crashes when a message that it cut into segments meets a shorter buffer. */
	setenv("FI_OFI_RXM_SAR_LIMIT", "0", 0);
	fi_param_define(&edge_provider, "buffer", FI_PARAM_SIZE_T, "Bytes of each of the two buffers of a connection, "
	                "which are pinned: a power of two from 4096 to 536870912 (default: 262144)");
	fi_param_define(&edge_provider, "spin", FI_PARAM_INT, "Microseconds for which a program may ask a completion queue "
	                "or a counter in vain. Then a question takes up to 250 us, unless something comes. 0: never "
	                "(default: 50)");
	fi_param_define(&edge_provider, "fatal", FI_PARAM_BOOL, "Whether the process ends, with a message, when a daemon "
	                "ends under a connection, since ofi_rxm does not tell (default: where mpirun started it)");
	return &edge_provider;
}
