/* Queue pairs: created, taken from state to state, destroyed
 *
 * fabricd gives the number, and is told all attributes with each change; which changes there are, and what each needs, is
 * said here.
 */
#include "railbed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define BUCKETS 1024

struct qp *qps;
static struct qp *by_number[BUCKETS];
static uint32_t cookies;

/* qp_of() - The queue pair of that number, or NULL */
struct qp *qp_of(uint32_t number)
{
	struct qp *q = by_number[number % BUCKETS];

	while (q && q->number != number)
		q = q->beside;
	return q;
}

static uint32_t new_number(const struct ibv_qp_init_attr_ex *a)
{
	const struct wire_create_qp c = {.cookie = ++cookies, .type = (uint8_t)a->qp_type, .domain = a->pd->handle,
					.shared = a->srq ? ((struct shared *)a->srq)->number : 0};
	struct wire_number answer;

	session_begin();
	if (!session_open())
		return 0;
	memcpy(session_command(CREATE_QP, sizeof c), &c, sizeof c);
	if (!session_exchange(-1, REPLY_QP))
		return 0;
	memcpy(&answer, session.in + 8, sizeof answer);
	errno = ENOMEM; /* if there are too many */
	return answer.qp;
}

static void add(struct qp *q)
{
	struct qp **beside = &by_number[q->number % BUCKETS];

	q->next = qps;
	qps = q;
	q->beside = *beside;
	*beside = q;
	((struct cq *)q->qp.send_cq)->users++;
	((struct cq *)q->qp.recv_cq)->users++;
	if (q->qp.srq)
		((struct shared *)q->qp.srq)->users++;
	pd_use(q->qp.pd, 1);
}

static void take_out(struct qp *q)
{
	struct qp **at = &qps, **beside = &by_number[q->number % BUCKETS];

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	while (*beside != q)
		beside = &(*beside)->beside;
	*beside = q->beside;
	((struct cq *)q->qp.send_cq)->users--;
	((struct cq *)q->qp.recv_cq)->users--;
	if (q->qp.srq)
		((struct shared *)q->qp.srq)->users--;
	pd_use(q->qp.pd, -1);
}

static void release(struct qp *q)
{
	extended_free(q);
	free(q->sq);
	free(q->rq);
	free(q);
}

static struct qp *create(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp_cap *cap = &a->cap;

	if (a->qp_type != IBV_QPT_RC && a->qp_type != IBV_QPT_UC && a->qp_type != IBV_QPT_UD) {
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
	if (a->srq)
		q->cap.max_recv_wr = q->cap.max_recv_sge = 0;
	q->signal_all = a->sq_sig_all;
	q->sq = calloc(cap->max_send_wr + 1u, sizeof *q->sq);
	q->rq = calloc(q->cap.max_recv_wr + 1u, sizeof *q->rq);
	if (!q->sq || !q->rq) {
		release(q);
		errno = ENOMEM;
		return NULL;
	}
	struct ibv_qp *b = &q->qp;
	b->context = c;
	b->qp_context = a->qp_context;
	b->pd = a->pd;
	b->send_cq = a->send_cq;
	b->recv_cq = a->recv_cq;
	b->srq = a->srq;
	b->qp_type = a->qp_type;
	b->state = IBV_QPS_RESET;
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
	session_lock();
	q->number = b->qp_num = b->handle = new_number(a);
	q->forks = session.forks;
	if (q->number)
		add(q);
	session_unlock();
	if (!q->number) {
		int wrong = errno;
		release(q);
		errno = wrong;
		return NULL;
	}
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
	bool flags = a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS;

	if (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
	    (flags && a->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)) { /* there is no multicast */
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
	const struct wire_qp d = {.qp = q->number};

	session_lock();
	session_begin();
	if (session.fd >= 0 && q->forks == session.forks)
		memcpy(session_command(DESTROY_QP, sizeof d), &d, sizeof d);
	session_now();
	take_out(q);
	cq_forget(qp->send_cq, q->number);
	cq_forget(qp->recv_cq, q->number);
	session_unlock();
	pthread_mutex_lock(&qp->mutex);
	while (qp->events_completed != q->events)
		pthread_cond_wait(&qp->cond, &qp->mutex);
	pthread_mutex_unlock(&qp->mutex);
	release(q);
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *i)
{
	struct qp *q = (struct qp *)qp;

	(void)mask;
	session_lock();
	if (q->draining && session.fd >= 0 && q->forks == session.forks) /* who looks again and again lets time go on */
		session_wait(1, session.now + session.spend + session_slice(0));
	session_unlock();
	*a = q->attr;
	a->sq_draining = q->draining;
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

/* Tell fabricd all that is known of the queue pair */
static void tell(const struct qp *q, enum ibv_qp_state to)
{
	const struct ibv_qp_attr *a = &q->attr;
	struct wire_modify_qp m = {
		.qp = q->number,
		.state = (uint8_t)to,
		.mtu = (uint8_t)a->path_mtu,
		.timeout = a->timeout,
		.retry = a->retry_cnt,
		.rnr_retry = a->rnr_retry,
		.rnr_timer = a->min_rnr_timer,
		.reads = a->max_rd_atomic,
		.peers_reads = a->max_dest_rd_atomic,
		.expected_psn = a->rq_psn,
		.send_psn = a->sq_psn,
		.peer = a->dest_qp_num,
		.access = (uint8_t)(a->qp_access_flags & 15),
		.rate = a->rate_limit,
		.qkey = a->qkey,
	};

	memcpy(&m.address, &a->ah_attr.grh.dgid.raw[12], 4);
	m.address = ntohl(m.address);
	if (a->ah_attr.grh.traffic_class) {
		m.flags = 1;
		m.dscp = a->ah_attr.grh.traffic_class >> 2;
		m.class = a->ah_attr.sl & 7;
	}
	session_begin();
	memcpy(session_command(MODIFY_QP, sizeof m), &m, sizeof m);
	session_now();
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
static bool allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	static const struct {
		enum ibv_qp_state from, to;
		int needs, of_unreliable, of_datagrams; /* the former of connections */
	} steps[] = {
		{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
		{IBV_QPS_INIT, IBV_QPS_INIT, 0, 0, 0},
		{IBV_QPS_INIT, IBV_QPS_RTR,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, 0},
		{IBV_QPS_RTR, IBV_QPS_RTS,
		 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		 IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
		{IBV_QPS_RTS, IBV_QPS_RTS, 0, 0, 0},
		{IBV_QPS_RTS, IBV_QPS_SQD, 0, 0, 0},
		{IBV_QPS_SQD, IBV_QPS_SQD, 0, 0, 0},
		{IBV_QPS_SQD, IBV_QPS_RTS, 0, 0, 0},
		{IBV_QPS_SQE, IBV_QPS_RTS, 0, 0, 0},
	};

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		if (steps[i].from == from && steps[i].to == to)
			return !((type == IBV_QPT_UD   ? steps[i].of_datagrams
				  : type == IBV_QPT_UC ? steps[i].of_unreliable
						       : steps[i].needs) &
				 ~mask);
	return false;
}

/* What may be changed only where nothing is under way by it: in RTS, and in SQD until it is drained, something may be */
#define OF_DRAINED (IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC)

static int wrong_with(const struct qp *q, const struct ibv_qp_attr *a, int mask, enum ibv_qp_state to)
{
	uint32_t rank;

	if (mask & IBV_QP_CUR_STATE && a->cur_qp_state != q->qp.state)
		return EINVAL;
	if (!allowed(q->qp.qp_type, q->qp.state, to, mask))
		return EINVAL;
	if (q->qp.state == IBV_QPS_SQD && mask & OF_DRAINED &&
	    (to != IBV_QPS_SQD || q->draining || (mask & IBV_QP_AV && memcmp(&a->ah_attr.grh.dgid, &q->attr.ah_attr.grh.dgid, sizeof a->ah_attr.grh.dgid))))
		return EINVAL; /* nor does it get another peer */
	if (mask & IBV_QP_PORT && a->port_num != PORT)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && a->pkey_index)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT && a->timeout > 31) || (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31) ||
	    (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) || (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7))
		return EINVAL;
	if (mask & IBV_QP_AV && (!a->ah_attr.is_global || a->ah_attr.grh.sgid_index != railbed_gid_index() || a->ah_attr.port_num != PORT))
		return EINVAL;
	if (mask & IBV_QP_AV && !place_rank_of(&a->ah_attr.grh.dgid, &rank))
		return ENETUNREACH;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > READS_MAX) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > READS_MAX))
		return EINVAL;
	if (mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE))
		return EOPNOTSUPP;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)qp;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : qp->state;
	int wrong;

	session_lock();
	wrong = q->forks != session.forks ? EIO : session_open() ? wrong_with(q, a, mask, to) : errno;
	if (!wrong) {
		if (to == IBV_QPS_SQD && qp->state == IBV_QPS_RTS) {
			q->draining = true;
			q->drain_told = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && a->en_sqd_async_notify;
		}
		q->draining = q->draining && to == IBV_QPS_SQD;
		take(&q->attr, a, mask);
		if (to == IBV_QPS_RESET) {
			cq_forget(qp->send_cq, q->number);
			cq_forget(qp->recv_cq, q->number);
			q->sq_head = q->sq_tail = q->rq_head = q->rq_tail = 0;
		}
		tell(q, to);
		qp->state = to;
	}
	session_unlock();
	return wrong;
}

/* qp_told() - Its program takes an event of a queue pair, and is to acknowledge it; false: the queue pair is gone */
bool qp_told(const struct ibv_qp *qp)
{
	for (struct qp *q = qps; q; q = q->next)
		if (&q->qp == qp) {
			q->events++;
			return true;
		}
	return false;
}

/* qp_event() - Something has happened to a queue pair that has no completion */
void qp_event(uint32_t number, uint32_t type)
{
	struct qp *q = qp_of(number);

	if (!q)
		return;
	if (type == IBV_EVENT_SQ_DRAINED && (!q->draining || (q->draining = false, !q->drain_told)))
		return;
	if (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR)
		q->qp.state = IBV_QPS_ERR;
	async_add(q->qp.context, &(struct ibv_async_event){.element.qp = &q->qp, .event_type = type});
}
