/* Queue pairs: created, taken from state to state, destroyed
 *
 * RTR names the peer's GID and number.  Both ends ask fabricd for a connection then; what is posted before it is there
 * waits in the library.
 */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

struct qp *qps;
static struct qp *by_number[QP_MAX * 2];
static uint32_t next_number = 0x100, cookies;

/* qp_of() - The queue pair behind fabricd's number, or NULL */
struct qp *qp_of(uint32_t number)
{
	return number < sizeof by_number / sizeof *by_number ? by_number[number] : NULL;
}

static struct qp *create(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp_cap *cap = &a->cap;

	if (a->qp_type != IBV_QPT_RC || a->srq) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (cap->max_send_wr > WR_MAX || cap->max_recv_wr > WR_MAX || cap->max_send_sge > SGE_MAX ||
	    cap->max_recv_sge > SGE_MAX || cap->max_inline_data > INLINE_MAX || !a->pd || !a->send_cq || !a->recv_cq) {
		errno = EINVAL;
		return NULL;
	}
	struct qp *q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->cap = *cap;
	q->signal_all = a->sq_sig_all;
	q->sq = calloc(cap->max_send_wr + 1u, sizeof *q->sq);
	q->rq = calloc(cap->max_recv_wr + 1u, sizeof *q->rq);
	if (!q->sq || !q->rq) {
		free(q->sq);
		free(q->rq);
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	struct ibv_qp *b = &q->qp;
	b->context = c;
	b->qp_context = a->qp_context;
	b->pd = a->pd;
	b->send_cq = a->send_cq;
	b->recv_cq = a->recv_cq;
	b->qp_type = a->qp_type;
	b->state = IBV_QPS_RESET;
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
	session_lock();
	b->qp_num = b->handle = next_number++;
	q->next = qps;
	qps = q;
	((struct cq *)b->send_cq)->users++;
	((struct cq *)b->recv_cq)->users++;
	session_unlock();
	return q;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};

	memcpy(&x, a, sizeof *a);
	struct qp *q = create(pd->context, &x);
	if (q)
		a->cap = q->cap;
	return q ? &q->qp : NULL;
}

struct ibv_qp *qp_create_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	if (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct qp *q = create(c, a);
	if (q && a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && !extended_init(q, a->send_ops_flags)) {
		ibv_destroy_qp(&q->qp);
		errno = EOPNOTSUPP;
		return NULL;
	}
	return q ? &q->qp : NULL;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return ((struct qp *)qp)->extended ? &((struct qp *)qp)->ex : NULL;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;

	session_lock();
	for (struct qp **at = &qps; *at; at = &(*at)->next)
		if (*at == q) {
			*at = q->next;
			break;
		}
	if (q->connected)
		by_number[q->number] = NULL;
	cq_forget(qp->send_cq, qp->qp_num);
	cq_forget(qp->recv_cq, qp->qp_num);
	((struct cq *)qp->send_cq)->users--;
	((struct cq *)qp->recv_cq)->users--;
	session_unlock();
	free(q->early);
	extended_free(q);
	free(q->sq);
	free(q->rq);
	free(q);
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *i)
{
	struct qp *q = (struct qp *)qp;

	(void)mask;
	*a = q->attr;
	a->qp_state = a->cur_qp_state = qp->state;
	a->cap = q->cap;
	*i = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = q->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = q->signal_all,
	};
	return 0;
}

static int connect(struct qp *q)
{
	struct wire_connect c = {.cookie = ++cookies, .flags = CONNECT_NETWORK_ONLY};
	uint32_t mine = q->qp.qp_num & 0xffff, theirs = q->attr.dest_qp_num & 0xffff;

	if (!q->attr.ah_attr.is_global || !place_rank_of(&q->attr.ah_attr.grh.dgid, &c.peer))
		return EINVAL;
	if (c.peer == session.rank)
		return EOPNOTSUPP;
	c.tag = session.rank < c.peer ? mine << 16 | theirs : theirs << 16 | mine; /* made of both: it stands for this pair */
	memcpy(session_command(CONNECT, sizeof c), &c, sizeof c);
	session_flush();
	q->connecting = true;
	q->cookie = c.cookie;
	return 0;
}

/* qp_connected() - Both ends are there: what was posted meanwhile goes out */
void qp_connected(uint32_t cookie, uint32_t number)
{
	struct qp *q = qps;

	while (q && !(q->connecting && q->cookie == cookie))
		q = q->next;
	if (!q || number >= sizeof by_number / sizeof *by_number)
		return;
	q->connecting = false;
	q->connected = true;
	q->number = number;
	by_number[number] = q;
	for (size_t at = 0; at < q->early_len;) {
		uint16_t op, len;
		memcpy(&op, q->early + at, 2);
		memcpy(&len, q->early + at + 2, 2);
		memcpy(q->early + at + 8, &number, 4);
		memcpy(session_command(op, (uint16_t)(len - 8)), q->early + at + 8, len - 8u);
		at += len;
	}
	q->early_len = 0;
	session_flush();
}

/* What a mask stands for, attribute by attribute */
static void take(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define TAKE(bit, field)                                                                                                    \
	if (mask & (bit))                                                                                                   \
	to->field = from->field
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RATE_LIMIT, rate_limit);
#undef TAKE
}

/* Whether a transition is one, and comes with what it needs (InfiniBand, table "QP state transition properties") */
static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	static const struct {
		enum ibv_qp_state from, to;
		int needs;
	} steps[] = {
		{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
		{IBV_QPS_INIT, IBV_QPS_INIT, 0},
		{IBV_QPS_INIT, IBV_QPS_RTR,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER},
		{IBV_QPS_RTR, IBV_QPS_RTS,
		 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC},
		{IBV_QPS_RTS, IBV_QPS_RTS, 0},
		{IBV_QPS_RTS, IBV_QPS_SQD, 0},
		{IBV_QPS_SQD, IBV_QPS_RTS, 0},
		{IBV_QPS_SQD, IBV_QPS_SQD, 0},
	};

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		if (steps[i].from == from && steps[i].to == to)
			return (mask & steps[i].needs) == steps[i].needs;
	return false;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)qp;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : qp->state;
	int wrong = 0;

	session_lock();
	if (!session_open())
		wrong = errno;
	else if (mask & IBV_QP_CUR_STATE && a->cur_qp_state != qp->state)
		wrong = EINVAL;
	else if (!allowed(qp->state, to, mask) || (mask & IBV_QP_PORT && a->port_num != PORT))
		wrong = EINVAL;
	if (!wrong)
		take(&q->attr, a, mask);
	if (!wrong && to == IBV_QPS_RTR)
		wrong = connect(q);
	if (!wrong && to == IBV_QPS_ERR)
		qp_error(q);
	if (!wrong)
		qp->state = to;
	session_unlock();
	return wrong;
}
