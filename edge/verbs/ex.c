/* The extended interfaces: queue pairs whose work requests are put together by calls, completion queues that are read
 * entry by entry. They lead to the plain ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qp.h"

enum { INLINE_ROOM = 64 << 10 };

/* Work requests between wr_start and wr_complete. */
struct batch {
	unsigned n, room, inlined; /* bytes of data */
	int err;
	struct ibv_send_wr *wr;
	struct ibv_sge (*sge)[MAX_SGE];
	char data[INLINE_ROOM];
};

static struct batch *batch_of(struct ibv_qp_ex *x)
{
	return ((struct qp *)x)->batch;
}

static void wr_start(struct ibv_qp_ex *x)
{
	struct batch *b = batch_of(x);
	b->n = b->inlined = 0;
	b->err = 0;
}

static struct ibv_send_wr *begin(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode)
{
	static struct ibv_send_wr nowhere;
	struct batch *b = batch_of(x);
	if (b->n == b->room) {
		b->err = ENOMEM;
		return &nowhere;
	}
	struct ibv_send_wr *w = &b->wr[b->n];
	*w = (struct ibv_send_wr){ .wr_id = x->wr_id, .send_flags = x->wr_flags, .opcode = opcode,
		.sg_list = b->sge[b->n] };
	b->n++;
	return w;
}

static void wr_rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address)
{
	struct ibv_send_wr *w = begin(x, IBV_WR_RDMA_WRITE);
	w->wr.rdma.rkey = rkey;
	w->wr.rdma.remote_addr = address;
}

static void wr_rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address, __be32 imm)
{
	struct ibv_send_wr *w = begin(x, IBV_WR_RDMA_WRITE_WITH_IMM);
	w->wr.rdma.rkey = rkey;
	w->wr.rdma.remote_addr = address;
	w->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address)
{
	struct ibv_send_wr *w = begin(x, IBV_WR_RDMA_READ);
	w->wr.rdma.rkey = rkey;
	w->wr.rdma.remote_addr = address;
}

static void wr_send(struct ibv_qp_ex *x)
{
	begin(x, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm)
{
	begin(x, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_atomic(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address,
                      uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *w = begin(x, opcode);
	w->wr.atomic.rkey = rkey;
	w->wr.atomic.remote_addr = address;
	w->wr.atomic.compare_add = compare_add;
	w->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap)
{
	wr_atomic(x, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address, uint64_t add)
{
	wr_atomic(x, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
}

static void wr_set_ud_addr(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct batch *b = batch_of(x);
	if (b->err != 0 || b->n == 0)
		return;
	struct ibv_send_wr *w = &b->wr[b->n - 1];
	w->wr.ud.ah = ah;
	w->wr.ud.remote_qpn = qpn;
	w->wr.ud.remote_qkey = qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	struct batch *b = batch_of(x);
	if (b->err != 0 || b->n == 0)
		return;
	if (n > MAX_SGE) {
		b->err = EINVAL;
		return;
	}
	memcpy(b->sge[b->n - 1], list, n * sizeof *list);
	b->wr[b->n - 1].num_sge = (int)n;
}

static void wr_set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t address, uint32_t length)
{
	struct ibv_sge e = { .addr = address, .length = length, .lkey = lkey };
	wr_set_sge_list(x, 1, &e);
}

/* The data is copied now: the program may change it before wr_complete. */
static void wr_set_inline_data_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *list)
{
	struct batch *b = batch_of(x);
	if (b->err != 0 || b->n == 0)
		return;
	struct ibv_send_wr *w = &b->wr[b->n - 1];
	unsigned from = b->inlined;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > INLINE_ROOM - b->inlined) {
			b->err = ENOMEM;
			return;
		}
		memcpy(b->data + b->inlined, list[i].addr, list[i].length);
		b->inlined += (unsigned)list[i].length;
	}
	w->sg_list[0] = (struct ibv_sge){ .addr = (uintptr_t)b->data + from, .length = b->inlined - from };
	w->num_sge = 1;
	w->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *x, void *data, size_t size)
{
	struct ibv_data_buf one = { .addr = data, .length = size };
	wr_set_inline_data_list(x, 1, &one);
}

static int wr_complete(struct ibv_qp_ex *x)
{
	struct batch *b = batch_of(x);
	struct ibv_send_wr *bad;
	if (b->err != 0 || b->n == 0)
		return b->err;
	for (unsigned i = 0; i + 1 < b->n; i++)
		b->wr[i].next = &b->wr[i + 1];
	return post_send(&x->qp_base, b->wr, &bad);
}

static void wr_abort(struct ibv_qp_ex *x)
{
	wr_start(x);
}

static bool extend(struct qp *q)
{
	unsigned n = q->init.cap.max_send_wr;
	struct batch *b = calloc(1, sizeof *b + n * (sizeof *b->wr + sizeof *b->sge));
	if (b == NULL)
		return false;
	b->room = n;
	b->wr = (struct ibv_send_wr *)(b + 1);
	b->sge = (void *)(b->wr + n);
	q->batch = b;
	struct ibv_qp_ex *x = &q->ex;
	x->wr_start = wr_start;
	x->wr_complete = wr_complete;
	x->wr_abort = wr_abort;
	x->wr_rdma_write = wr_rdma_write;
	x->wr_rdma_write_imm = wr_rdma_write_imm;
	x->wr_rdma_read = wr_rdma_read;
	x->wr_send = wr_send;
	x->wr_send_imm = wr_send_imm;
	x->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	x->wr_atomic_fetch_add = wr_atomic_fetch_add;
	x->wr_set_ud_addr = wr_set_ud_addr;
	x->wr_set_sge = wr_set_sge;
	x->wr_set_sge_list = wr_set_sge_list;
	x->wr_set_inline_data = wr_set_inline_data;
	x->wr_set_inline_data_list = wr_set_inline_data_list;
	return true;
}

struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	bool extended = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	(void)c;
	if ((a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) ||
	    !(a->comp_mask & IBV_QP_INIT_ATTR_PD) || (extended && (a->send_ops_flags & ~ops))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct ibv_qp *qp = qp_create(a->pd, (struct ibv_qp_init_attr *)a); /* the former begins with the latter */
	if (qp == NULL || !extended || extend((struct qp *)qp))
		return qp;
	ibv_destroy_qp(qp);
	errno = ENOMEM;
	return NULL;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;
	return q->batch != NULL ? &q->ex : NULL;
}

static int next_poll(struct ibv_cq_ex *x)
{
	struct cq *q = (struct cq *)x;
	int n = cq_poll(&q->cq, 1, &q->current);
	if (n <= 0)
		return n == 0 ? ENOENT : EIO;
	x->wr_id = q->current.wr_id;
	x->status = q->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *a)
{
	return a->comp_mask != 0 ? EINVAL : next_poll(x);
}

static void end_poll(struct ibv_cq_ex *x)
{
	(void)x;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.opcode;
}

static uint32_t read_nothing(struct ibv_cq_ex *x)
{
	(void)x;
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.sl;
}

static uint8_t read_no_byte(struct ibv_cq_ex *x)
{
	(void)x;
	return 0;
}

static uint32_t read_byte_len(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.src_qp;
}

static unsigned read_wc_flags(struct ibv_cq_ex *x)
{
	return ((struct cq *)x)->current.wc_flags;
}

struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
	const uint64_t known = IBV_WC_STANDARD_FLAGS;
	if ((a->wc_flags & ~known) || (a->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) ||
	    ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (a->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct cq *q = (struct cq *)ibv_create_cq(c, (int)a->cqe, a->cq_context, a->channel, (int)a->comp_vector);
	if (q == NULL)
		return NULL;
	struct ibv_cq_ex *x = &q->ex;
	x->start_poll = start_poll;
	x->next_poll = next_poll;
	x->end_poll = end_poll;
	x->read_opcode = read_opcode;
	x->read_vendor_err = read_nothing;
	x->read_byte_len = read_byte_len;
	x->read_imm_data = read_imm_data;
	x->read_qp_num = read_qp_num;
	x->read_src_qp = read_src_qp;
	x->read_wc_flags = read_wc_flags;
	x->read_slid = read_nothing;
	x->read_sl = read_sl;
	x->read_dlid_path_bits = read_no_byte;
	return x;
}

struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a)
{
	(void)c;
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) ||
	    ((a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && a->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ibv_create_srq(a->pd, (struct ibv_srq_init_attr *)a);
}
